import { expect, test } from 'vitest';
import { openPoolUnderTest } from '../../../agents/pool-under-test.ts';
import { forSuite } from '../../../for-suite.ts';

/** Graphs with thousands of tasks in one step do not block the event loop of the worker. */

const under = forSuite(() => openPoolUnderTest('hostile', { heartbeatTimeoutMs: 60_000 }));

test.each([undefined, 1_999])(
  'four runs with 2,000 tasks each do not block the event loop (max_concurrency: %s)',
  async (maxConcurrency) => {
    const measured = under.values('turns', { input: { runs: 4 } });
    const config = maxConcurrency === undefined ? {} : { maxConcurrency };
    const wide = () => under.values('wide', { input: { n: 2_000 }, kwargs: { stream_mode: ['updates'], config } });
    for (const { done } of await Promise.all(Array.from({ length: 4 }, wide))) expect(done).toBe(2_000);
    const { maxTurnMs } = await measured;
    // LangGraph prepares a step in one turn. It executed the tasks of a step in one turn of more than seven seconds.
    expect(maxTurnMs).toBeLessThan(3_000);
  },
  120_000,
);

test.each([2, 50, 51, 130, 299])('at most max_concurrency tasks at the same time: %i', async (maxConcurrency) => {
  const kwargs = { config: { maxConcurrency } };
  const { done, maxActive } = await under.values('wide', {
    input: { n: 300, how: 'wait', hold: maxConcurrency },
    kwargs,
  });
  expect([done, maxActive]).toEqual([300, maxConcurrency]);
});

test('a task that fails fails the run', async () => {
  const { outcome } = await under.run('wide', { input: { n: 200, how: 'fail' } });
  expect(outcome).toMatchObject({ kind: 'failed', error: 'RangeError', message: 'on purpose' });
});

test('the interrupts of all tasks are open', async () => {
  const { outcome } = await under.run('wide', { input: { n: 200, how: 'ask' } });
  if (outcome.kind !== 'finished') throw new Error(JSON.stringify(outcome));
  const values = Object.values(outcome.interrupts).flatMap((open) => open.map(({ value }) => Number(value)));
  expect(values.sort((one, other) => one - other)).toEqual([0, 60, 120, 180]);
});
