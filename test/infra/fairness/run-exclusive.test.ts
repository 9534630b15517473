import { expect, it } from 'vitest';
import { runExclusive } from '../../../infra/fairness/run-exclusive.ts';

it('runs work of one key sequentially, also after failures, and work of other keys concurrently', async () => {
  const steps: string[] = [];
  const ends: (() => void)[] = [];
  const work =
    (name: string, fail = false) =>
    async () => {
      steps.push(`${name} begins`);
      await new Promise<void>((resolve) => ends.push(resolve));
      steps.push(`${name} ends`);
      if (fail) throw new Error(name);
      return name;
    };
  const first = runExclusive('a', work('first', true)).catch((error: Error) => `failed ${error.message}`);
  const second = runExclusive('a', work('second'));
  const other = runExclusive('b', work('other'));
  await expect.poll(() => ends.length).toBe(2);
  expect(steps).toEqual(['first begins', 'other begins']);
  ends[0]?.();
  expect(await first).toBe('failed first');
  await expect.poll(() => ends.length).toBe(3);
  ends[2]?.();
  expect(await second).toBe('second');
  ends[1]?.();
  expect(await other).toBe('other');
  expect(steps.slice(2)).toEqual(['first ends', 'second begins', 'second ends', 'other ends']);
});
