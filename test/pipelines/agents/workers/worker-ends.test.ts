import { existsSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest';
import { openPoolUnderTest } from '../../../agents/pool-under-test.ts';
import { folderForSuite } from '../../../folders.ts';
import { forSuite } from '../../../for-suite.ts';

const waitOptions = { timeout: 30_000, interval: 20 };
const slots = 2;

const under = forSuite(() =>
  openPoolUnderTest('basic', {
    workers: 2,
    runsPerWorker: slots,
    heartbeatTimeoutMs: 2_000,
    heapMegabytes: 192,
  }),
);

const misbehave = (input: object, job = {}) =>
  under.start('misbehave', { input, kwargs: { stream_mode: ['custom'] }, job });

describe('a worker that ends with a single run reports cause and reason', () => {
  test.each([
    ['exit', 'worker', /code 3/],
    ['reject', 'worker', /RangeError: rejected outside on purpose/],
    // Which of the two occurs first depends on the speed of the machine.
    ['leak', 'worker', /out of memory|its event loop did not turn for 2 s/],
    ['kill', 'external', /SIGKILL/],
  ])('%s', async (how, cause, reason) => {
    const { handle, received } = await misbehave({ how, afterMs: 50 });
    expect(await handle.outcome).toEqual({ kind: 'lost', cause, message: expect.stringMatching(reason) });
    expect(received).toMatchObject([{ data: { doing: how } }]);
  });
});

test('the cause is shared if a worker ends with several runs; each run alone in a worker shows the cause', async () => {
  // These runs occupy all slots of both workers except one.
  const peaceful = await Promise.all(
    Array.from({ length: 2 * slots - 1 }, () => under.start('steps', { input: { steps: 1, pauseMs: 60_000 } })),
  );
  await vi.waitFor(() => expect(peaceful.every(({ received }) => received.length === 1)).toBe(true), waitOptions);
  expect(under.pool.freeSlots).toBe(1);
  const killer = await misbehave({ how: 'exit' });
  expect(await killer.handle.outcome).toMatchObject({ kind: 'lost', cause: 'shared-worker' });
  const neighbour = await Promise.race(peaceful.map(({ handle }) => handle.outcome));
  expect(neighbour).toMatchObject({ kind: 'lost', cause: 'shared-worker' });
  // A run with `alone` never shares a worker, even if a worker is ready.
  const alone = { alone: true };
  const [good, bad] = await Promise.all([
    under.run('steps', { input: { steps: 2 }, job: alone }),
    misbehave({ how: 'exit' }, alone).then(({ handle }) => handle.outcome),
  ]);
  expect(good.outcome).toMatchObject({ kind: 'finished' });
  expect(bad).toMatchObject({ kind: 'lost', cause: 'worker' });
  for (const { handle } of peaceful) handle.cancel();
  const outcomes = await Promise.all(peaceful.map(({ handle }) => handle.outcome));
  // Runs in the other worker are not affected.
  expect(outcomes.filter(({ kind }) => kind === 'cancelled')).toHaveLength(slots);
});

test('a graph that blocks the event loop is stopped at its timeout; requests are answered meanwhile', async () => {
  const { handle, received } = await misbehave({ how: 'loop' }, { timeoutMs: 1_000 });
  await vi.waitFor(() => expect(received).toHaveLength(1), waitOptions);
  const schemas = await under.pool.query({ kind: 'schemas', graphId: 'typed', config: {} });
  expect(JSON.parse(schemas).input_schema).toMatchObject({ type: 'object' });
  // After the request to stop, the worker is killed because of missing heartbeats.
  expect(await handle.outcome).toEqual({ kind: 'timeout' });
});

test('the cause is shared if a cancelled run may still occupy the worker', async () => {
  const alone = await openPoolUnderTest('basic', { workers: 1, heartbeatTimeoutMs: 1_000 });
  onTestFinished(() => alone.close());
  const left = await alone.start('misbehave', {
    input: { how: 'loop', afterMs: 1_000 },
    kwargs: { stream_mode: ['custom'] },
  });
  await vi.waitFor(() => expect(left.received).toHaveLength(1), waitOptions);
  left.handle.cancel();
  expect(await left.handle.outcome).toMatchObject({ kind: 'cancelled' });
  const next = await alone.start('steps', { input: { steps: 1, pauseMs: 60_000 } });
  // The worker has a free slot; nevertheless, a run with `alone` starts in an additional worker.
  const separate = await alone.run('steps', { input: { steps: 1 }, job: { alone: true } });
  expect(separate.outcome).toMatchObject({ kind: 'finished' });
  expect(await next.handle.outcome).toMatchObject({ kind: 'lost', cause: 'shared-worker' });
});

describe('a worker with another run accepts runs again when a stopped run has ended', () => {
  const folder = folderForSuite();
  const single = forSuite(() =>
    openPoolUnderTest('basic', { workers: 1, runsPerWorker: slots, heartbeatTimeoutMs: 120_000 }),
  );
  const neighbour = forSuite(() =>
    single.start('steps', { input: { steps: 1, pauseMs: 600_000 }, job: { timeoutMs: 600_000 } }),
  );
  beforeAll(async () => {
    await vi.waitFor(() => expect(neighbour.received).toHaveLength(1), waitOptions);
  }, 60_000);

  async function expectFreeSlot(): Promise<void> {
    await vi.waitFor(() => expect(single.pool.freeSlots).toBe(slots - 1), waitOptions);
    expect(await single.values('steps', { input: { steps: 1 } })).toMatchObject({ count: 1 });
    expect(neighbour.handle.nodes).toBeUndefined();
  }

  test('after its node has blocked the event loop for longer than the timeout', { timeout: 90_000 }, async () => {
    const path = join(folder, 'blocking');
    const { handle } = await single.start('misbehave', { input: { how: 'block', path } });
    await vi.waitFor(() => expect(existsSync(path)).toBe(true), waitOptions);
    handle.cancel();
    expect(await handle.outcome).toEqual({ kind: 'cancelled' });
    expect(single.pool.freeSlots).toBe(0);
    rmSync(path);
    await expectFreeSlot();
  });

  test.each(['factory', 'state'])('that waited without end for its %s', { timeout: 90_000 }, async (hangs) => {
    const kwargs = { config: { configurable: { hangs } }, stream_mode: ['updates'] };
    const { handle, received } = await single.start('tailored', { input: { text: 'a' }, kwargs });
    if (hangs === 'state') await vi.waitFor(() => expect(received).toHaveLength(1), waitOptions);
    handle.cancel();
    expect(await handle.outcome).toEqual({ kind: 'cancelled' });
    await expectFreeSlot();
  });
});

test('closing waits for runs up to the timeout, then ends them as lost from outside', async () => {
  const slow = await under.start('steps', { input: { steps: 1, pauseMs: 60_000 } });
  const quick = await under.start('steps', { input: { steps: 1, pauseMs: 200 } });
  await vi.waitFor(() => expect(slow.received.length + quick.received.length).toBe(2), waitOptions);
  await under.pool.close(5_000);
  expect(await quick.handle.outcome).toMatchObject({ kind: 'finished' });
  expect(await slow.handle.outcome).toMatchObject({ kind: 'lost', cause: 'external' });
  expect(under.pool.freeSlots).toBe(0);
  await expect(under.pool.query({ kind: 'schemas', graphId: 'typed', config: {} })).rejects.toMatchObject({
    code: 'GRAPH_WORKER_BUSY',
  });
});
