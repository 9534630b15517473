import { expect, it } from 'vitest';
import { Ends } from '../../../api/command-line/ends.ts';
import { createLogger } from '../../../infra/telemetry/logger.ts';

const logger = createLogger('silent', 'test');

it('ends what is up from last to first, also after one that fails', async () => {
  const ended: string[] = [];
  const ends = new Ends();
  ends.add('a', () => ended.push('a'));
  ends.add('b', () => {
    throw new Error('b is stuck');
  });
  ends.add('c', async () => ended.push('c'));
  await ends.run(logger);
  expect(ended).toEqual(['c', 'a']);
});

it('ends at once what comes up after that, and says that the start is over', async () => {
  const ends = new Ends();
  await ends.run(logger);
  let late = false;
  const add = () =>
    ends.add('late', () => {
      late = true;
    });
  expect(add).toThrow('shutting down');
  await expect.poll(() => late).toBe(true);
});
