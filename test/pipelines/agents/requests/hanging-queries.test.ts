import { afterEach, expect, test } from 'vitest';
import { openPoolUnderTest, type PoolUnderTest } from '../../../agents/pool-under-test.ts';

/** Queries of a graph whose code never ends, or throws what has no text. */

let under: PoolUnderTest;
afterEach(() => under?.close());

const query = (graphId: string, configurable = {}) =>
  under.pool.query({ kind: 'drawing', graphId, config: { configurable }, xray: false });
const hang = () => query('tailored', { hangs: 'factory' });
const isBusy = { status: 'rejected', reason: { code: 'GRAPH_WORKER_BUSY' } };
const hangMany = (count: number) => Promise.allSettled(Array.from({ length: count }, hang));

test('do not block queries of other graphs', async () => {
  under = await openPoolUnderTest('basic');
  // They stay in the worker until the pool closes.
  void hangMany(16);
  expect(JSON.parse(await query('steps'))).toMatchObject({ nodes: expect.anything() });
});

test('that throw a value without text fail alone', async () => {
  under = await openPoolUnderTest('basic');
  const process = await query('tailored', { node: 'process' });
  const reason = { code: 'GRAPH_FAILED', parameters: { reason: 'The graph threw a value that has no text.' } };
  await expect(query('tailored', { node: 'textless' })).rejects.toMatchObject(reason);
  expect(await query('tailored', { node: 'process' })).toBe(process);
});

test('end the process when too many are unanswered; the next process answers queries', {
  timeout: 120_000,
}, async () => {
  under = await openPoolUnderTest('basic', { queryTimeoutMs: 1_000 });
  const readProcess = () => query('tailored', { node: 'process' });
  const first = await readProcess();
  expect(first).toContain('process-');
  expect(await readProcess()).toBe(first);
  for (let rounds = 0; rounds < 13; rounds += 1) expect(await hangMany(8)).toMatchObject(Array(8).fill(isBusy));
  await expect.poll(() => readProcess().catch(() => first), { timeout: 60_000 }).not.toBe(first);
});
