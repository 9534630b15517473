import { randomUUID } from 'node:crypto';
import { Client } from 'langsmith';
import { expect, test, vi } from 'vitest';
import { listProcesses } from '../infra/embedded/processes.ts';
import { until } from '../infra/until.ts';
import { startRunlake } from '../runlake-process.ts';
import { deadlineMs, dottedOrder, type Instance, makeChildRun, rootRun, shareInstance } from './instance.ts';

vi.setConfig({ testTimeout: 300_000, hookTimeout: 300_000 });

let instance: Instance;
shareInstance((opened) => {
  instance = opened;
});

/**
 * Sends runs one by one through the stock SDK, from concurrent senders, until stopped. A run is acknowledged when its
 * call resolves.
 */
function sendUntilStopped() {
  const { url, apiKey } = instance.runlake;
  const client = new Client({ apiUrl: url, apiKey, autoBatchTracing: false });
  const acknowledged = new Set<string>();
  let stopped = false;
  const sender = async () => {
    while (!stopped) {
      const id = randomUUID();
      const run = { id, name: 'run', run_type: 'chain', inputs: { id }, start_time: Date.now() } as const;
      await client.createRun(run).then(
        () => acknowledged.add(id),
        () => undefined,
      );
    }
  };
  const senders = Array.from({ length: 6 }, sender);
  return {
    acknowledged,
    stop: async () => {
      stopped = true;
      await Promise.all(senders);
    },
  };
}

test('kill -9 under load: every run that was acknowledged to the SDK is stored once and counted', async () => {
  const since = await instance.since();
  const load = sendUntilStopped();
  for (const enough of [30, 60]) {
    await until('runs to be acknowledged', () => load.acknowledged.size >= enough, deadlineMs);
    await instance.restart();
  }
  await until('runs to be acknowledged after the last start', () => load.acknowledged.size >= 90, deadlineMs);
  await load.stop();

  const stored = await since.storedRuns();
  expect([...load.acknowledged].filter((id) => !stored.has(id))).toEqual([]);
  expect(await since.countedTraces()).toBe(stored.size);
  expect(await instance.rowsOf('in_flight_inserts')).toBe(0);
});

test('no process outlives kill -9, and a second process on the data folder is refused with one sentence', async () => {
  const { dataDir } = instance.runlake;
  const second = startRunlake({ dataDir });
  await expect(second).rejects.toThrow(/runlake ended with 1:\n.*is in use by another runlake process \(\d+\)/);
  await instance.runlake.kill();
  await expect.poll(() => listProcesses(dataDir), { timeout: 15_000 }).toEqual([]);
  await instance.restart();
  expect((await instance.send('POST', '/runs', rootRun())).status).toBe(202);
});

test('kill -9 between the record of an insert and the insert: each run is stored or not, counted once; the retry completes it', async () => {
  const since = await instance.since();
  const root = rootRun();
  expect((await instance.send('POST', '/runs/batch', { post: [root] })).status).toBe(202);
  // The run belongs to a stored trace, so that the sink does not query ClickHouse before the insert.
  const child = makeChildRun(root);
  const release = instance.stallClickhouse();
  const sent = instance.send('POST', '/runs/batch', { post: [child] });
  sent.catch(() => undefined);
  await until(
    'the insert batch to be recorded',
    async () => (await instance.rowsOf('in_flight_inserts')) === 1,
    deadlineMs,
  );
  await instance.runlake.kill();
  await expect(sent).rejects.toThrow();
  release();
  await instance.restart();

  expect(await since.countedTraces()).toBe(1);
  expect(await instance.rowsOf('in_flight_inserts')).toBe(0);
  expect((await instance.send('POST', '/runs/batch', { post: [child] })).status).toBe(202);
  expect(await since.storedRuns()).toEqual(new Set([root.id, child.id]));
  expect(await since.countedTraces()).toBe(1);
});

test('kill -9 after the insert, before its hour is marked dirty: the next start counts the run without a repeated request', async () => {
  const since = await instance.since();
  const { default: pg } = await import('pg');
  const blocker = new pg.Client(instance.runlake.stores().databaseUrl);
  blocker.on('error', () => undefined);
  await blocker.connect();
  await blocker.query('BEGIN');
  await blocker.query('LOCK TABLE usage_dirty_hours IN ACCESS EXCLUSIVE MODE');
  const run = rootRun();
  const sent = instance.send('POST', '/runs', run);
  sent.catch(() => undefined);
  await until('the run to be stored', async () => (await since.storedRuns()).has(run.id), deadlineMs);
  expect(await instance.rowsOf('in_flight_inserts')).toBe(1);
  await instance.runlake.kill();
  await blocker.end().catch(() => undefined);
  await instance.restart();

  expect(await instance.rowsOf('in_flight_inserts')).toBe(0);
  expect(await since.countedTraces()).toBe(1);
});

test('a deferred patch survives kill -9 and is released when its trace arrives', async () => {
  const since = await instance.since();
  const id = randomUUID();
  const ids = { id, trace_id: id, dotted_order: dottedOrder(id) };
  const patch = { patch: [{ ...ids, outputs: { late: true }, end_time: new Date().toISOString() }] };
  expect((await instance.send('POST', '/runs/batch', patch)).status).toBe(202);
  expect(await instance.rowsOf('deferred_events')).toBe(1);
  expect(await since.storedRuns()).toEqual(new Set());
  await instance.runlake.kill();
  await instance.restart();
  expect(await instance.rowsOf('deferred_events')).toBe(1);

  const post = { post: [{ ...ids, name: 'root', run_type: 'chain', start_time: new Date().toISOString() }] };
  expect((await instance.send('POST', '/runs/batch', post)).status).toBe(202);
  expect(await instance.rowsOf('deferred_events')).toBe(0);
  const headers = { 'x-api-key': instance.runlake.apiKey };
  const read = await (await fetch(`${instance.runlake.url}/runs/${id}`, { headers })).json();
  expect(read).toMatchObject({ name: 'root', outputs: { late: true }, status: 'success' });
  expect(await since.countedTraces()).toBe(1);
});
