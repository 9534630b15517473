import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { openPoolUnderTest, type PoolUnderTest } from '../../../agents/pool-under-test.ts';

const patiently = { timeout: 30_000, interval: 20 };
const slots = 2;

let under: PoolUnderTest;
beforeAll(async () => {
  under = await openPoolUnderTest('basic', { workers: 2, runsPerWorker: slots, silentMs: 2_000, heapMegabytes: 192 });
});
afterAll(() => under?.close());

const misbehave = (input: object, job = {}) =>
  under.start('misbehave', { input, kwargs: { stream_mode: ['custom'] }, job });

describe('a worker that ends with one run in it', () => {
  test.each([
    ['exit', 'self', /code 3/],
    ['reject', 'self', /RangeError: rejected outside on purpose/],
    // Which comes first is a matter of how fast the machine is.
    ['leak', 'self', /out of memory|its event loop did not turn for 2 s/],
    ['kill', 'outside', /SIGKILL/],
  ])('%s', async (how, blame, reason) => {
    const { handle, told } = await misbehave({ how, afterMs: 50 });
    expect(await handle.outcome).toEqual({ kind: 'lost', blame, message: expect.stringMatching(reason) });
    expect(told).toMatchObject([{ data: { doing: how } }]);
  });
});

test('with several in it nobody is known to be to blame; alone each shows what it is', async () => {
  // All slots of both workers.
  const peaceful = await Promise.all(
    Array.from({ length: 2 * slots - 1 }, () => under.start('steps', { input: { steps: 1, pauseMs: 60_000 } })),
  );
  await vi.waitFor(() => expect(peaceful.every(({ told }) => told.length === 1)).toBe(true), patiently);
  expect(under.pool.freeSlots).toBe(1);
  const killer = await misbehave({ how: 'exit' });
  expect(await killer.handle.outcome).toMatchObject({ kind: 'lost', blame: 'shared' });
  const beside = await Promise.race(peaceful.map(({ handle }) => handle.outcome));
  expect(beside).toMatchObject({ kind: 'lost', blame: 'shared' });
  // Neither is put beside another, whether a worker is ready or not.
  const alone = { alone: true };
  const [good, bad] = await Promise.all([
    under.run('steps', { input: { steps: 2 }, job: alone }),
    misbehave({ how: 'exit' }, alone).then(({ handle }) => handle.outcome),
  ]);
  expect(good.outcome).toMatchObject({ kind: 'finished' });
  expect(bad).toMatchObject({ kind: 'lost', blame: 'self' });
  for (const { handle } of peaceful) handle.cancel();
  const outcomes = await Promise.all(peaceful.map(({ handle }) => handle.outcome));
  // Those in the other worker were not touched.
  expect(outcomes.filter(({ kind }) => kind === 'cancelled')).toHaveLength(slots);
});

test('a graph that holds the event loop is stopped in time; questions are answered meanwhile', async () => {
  const { handle, told } = await misbehave({ how: 'loop' }, { timeoutMs: 1_000 });
  await vi.waitFor(() => expect(told).toHaveLength(1), patiently);
  const schemas = await under.pool.ask({ kind: 'schemas', graphId: 'typed', config: {} });
  expect(JSON.parse(schemas).input_schema).toMatchObject({ type: 'object' });
  // Killed for its silence, after it was asked to stop.
  expect(await handle.outcome).toEqual({ kind: 'timeout' });
});

test('a run beside what a stopped run left is not the only suspect', async () => {
  const alone = await openPoolUnderTest('basic', { workers: 1, silentMs: 1_000 });
  try {
    const left = await alone.start('misbehave', {
      input: { how: 'loop', afterMs: 1_000 },
      kwargs: { stream_mode: ['custom'] },
    });
    await vi.waitFor(() => expect(left.told).toHaveLength(1), patiently);
    left.handle.cancel();
    expect(await left.handle.outcome).toEqual({ kind: 'cancelled' });
    const next = await alone.start('steps', { input: { steps: 1, pauseMs: 60_000 } });
    // The worker has a free slot; a run that is to be alone starts in a further one.
    const apart = await alone.run('steps', { input: { steps: 1 }, job: { alone: true } });
    expect(apart.outcome).toMatchObject({ kind: 'finished' });
    expect(await next.handle.outcome).toMatchObject({ kind: 'lost', blame: 'shared' });
  } finally {
    await alone.close();
  }
});

test('closing gives runs their time, then they are lost from outside', async () => {
  const slow = await under.start('steps', { input: { steps: 1, pauseMs: 60_000 } });
  const quick = await under.start('steps', { input: { steps: 1, pauseMs: 200 } });
  await vi.waitFor(() => expect(slow.told.length + quick.told.length).toBe(2), patiently);
  await under.pool.close(5_000);
  expect(await quick.handle.outcome).toMatchObject({ kind: 'finished' });
  expect(await slow.handle.outcome).toMatchObject({ kind: 'lost', blame: 'outside' });
  expect(under.pool.freeSlots).toBe(0);
  await expect(under.pool.ask({ kind: 'schemas', graphId: 'typed', config: {} })).rejects.toMatchObject({
    code: 'GRAPH_WORKER_BUSY',
  });
});
