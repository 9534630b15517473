import { expect, it, vi } from 'vitest';
import { runExclusive, runExclusiveForAll } from '../../../infra/fairness/run-exclusive.ts';

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

const limit = (maxWaitMs: number) => ({ maxWaitMs, createError: () => new Error('too late') });

it('runs work of several keys while no other work of any of them runs, without a deadlock', async () => {
  const steps: string[] = [];
  const run = (...keys: string[]) =>
    runExclusiveForAll(keys, limit(60_000), async () => {
      steps.push(keys.join());
      await new Promise(setImmediate);
      steps.push(keys.join());
    });
  await Promise.all([run('a', 'b'), run('b', 'a', 'a'), run('b'), run('b', 'c')]);
  expect(steps).toHaveLength(8);
  for (let at = 0; at < steps.length; at += 2) expect(steps[at]).toBe(steps[at + 1]);
});

it('does not wait longer than the limit for work that never ends', async () => {
  let end: () => void = () => undefined;
  const stuck = runExclusiveForAll(['b'], limit(60_000), () => new Promise<void>((resolve) => (end = resolve)));
  const work = vi.fn(async () => 'done');
  await expect(runExclusiveForAll(['a', 'b'], limit(20), work)).rejects.toThrow('too late');
  // Its turn for the other key has ended.
  expect(await runExclusiveForAll(['a'], limit(60_000), async () => 'next')).toBe('next');
  end();
  await stuck;
  expect(await runExclusiveForAll(['a', 'b'], limit(60_000), async () => 'next')).toBe('next');
  expect(work).not.toHaveBeenCalled();
});

it('does not start work whose turn comes too late', async () => {
  const work = vi.fn(async () => 'done');
  expect(await runExclusiveForAll(['a'], limit(60_000), work)).toBe('done');
  await expect(runExclusiveForAll(['a'], limit(-1), work)).rejects.toThrow('too late');
  expect(work).toHaveBeenCalledTimes(1);
});
