import { expect, it } from 'vitest';
import { ShutdownSteps } from '../../../api/command-line/shutdown-steps.ts';
import { logger } from '../../silent-logger.ts';

it('runs end functions in reverse order, and continues after one that fails', async () => {
  const ended: string[] = [];
  const ends = new ShutdownSteps();
  ends.add('a', () => ended.push('a'));
  ends.add('b', () => {
    throw new Error('b is stuck');
  });
  ends.add('c', async () => ended.push('c'));
  await ends.run(logger);
  expect(ended).toEqual(['c', 'a']);
});

it('runs an end function at once if it is added after the end, and throws that the process is shutting down', async () => {
  const ends = new ShutdownSteps();
  await ends.run(logger);
  let late = false;
  const add = () =>
    ends.add('late', () => {
      late = true;
    });
  expect(add).toThrow('shutting down');
  await expect.poll(() => late).toBe(true);
});
