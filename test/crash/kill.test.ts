import { randomUUID } from 'node:crypto';
import { Client } from 'langsmith';
import { expect, test, vi } from 'vitest';
import { listProcesses } from '../infra/embedded/processes.ts';
import { until } from '../infra/until.ts';
import { startRunlake } from '../runlake-process.ts';
import { deadlineMs, dottedOrder, makeChildRun, rootRun, shareInstance } from './instance.ts';

vi.setConfig({ testTimeout: 300_000, hookTimeout: 300_000 });

const instance = shareInstance();

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
});

test('no process outlives kill -9, and a second process on the data folder is refused with one sentence', async () => {
  const { dataDir } = instance.runlake;
  const second = startRunlake({ dataDir });
  await expect(second).rejects.toThrow(/runlake ended with 1:\n.*is in use by another runlake process: process \d+/);
  await instance.runlake.kill();
  await expect.poll(() => listProcesses(dataDir), { timeout: 15_000 }).toEqual([]);
  await instance.restart();
  expect((await instance.send('POST', '/runs', rootRun())).status).toBe(202);
});

test('kill -9 before ClickHouse has the events: each run is stored or not, counted once; the retry completes it', async () => {
  const since = await instance.since();
  const root = rootRun();
  expect((await instance.send('POST', '/runs/batch', { post: [root] })).status).toBe(202);
  const child = makeChildRun(root);
  const release = await instance.stallClickhouse();
  const sent = instance.send('POST', '/runs/batch', { post: [child] });
  sent.catch(() => undefined);
  await until('the event to be pending', () => instance.hasPendingEvents(), deadlineMs);
  await instance.runlake.kill();
  await expect(sent).rejects.toThrow();
  release();
  await instance.restart();

  expect(await since.countedTraces()).toBe(1);
  expect((await instance.send('POST', '/runs/batch', { post: [child] })).status).toBe(202);
  expect(await since.storedRuns()).toEqual(new Set([root.id, child.id]));
  expect(await since.countedTraces()).toBe(1);
});

/** Locks a table of Postgres until the returned function is called. */
async function lockTable(table: string): Promise<() => Promise<void>> {
  const { default: pg } = await import('pg');
  const blocker = new pg.Client(instance.runlake.stores().databaseUrl);
  blocker.on('error', () => undefined);
  await blocker.connect();
  await blocker.query('BEGIN');
  await blocker.query(`LOCK TABLE ${table} IN ACCESS EXCLUSIVE MODE`);
  return () => blocker.end().catch(() => undefined);
}

test('kill -9 after the response, before the sink stores the events: the next start stores and counts them', async () => {
  const since = await instance.since();
  // The sink reads this table before it inserts runs.
  const unlock = await lockTable('deferred_events');
  const runs = Array.from({ length: 5 }, () => rootRun());
  for (const run of runs) expect((await instance.send('POST', '/runs', run)).status).toBe(202);
  expect(await instance.storedRuns()).not.toContain(runs[0]?.id);
  await instance.runlake.kill();
  await unlock();
  await instance.restart();

  expect(await since.storedRuns()).toEqual(new Set(runs.map(({ id }) => id)));
  expect(await since.countedTraces()).toBe(runs.length);
});

test('kill -9 after the insert, before its hour is marked dirty: the next start counts the run', async () => {
  const since = await instance.since();
  const unlock = await lockTable('usage_dirty_hours');
  const run = rootRun();
  expect((await instance.send('POST', '/runs', run)).status).toBe(202);
  await until('the run to be stored', async () => (await instance.storedRuns()).has(run.id), deadlineMs);
  await instance.runlake.kill();
  await unlock();
  await instance.restart();

  expect(await since.storedRuns()).toEqual(new Set([run.id]));
  expect(await since.countedTraces()).toBe(1);
});

test('a deferred patch survives kill -9 and is released when its trace arrives', async () => {
  const since = await instance.since();
  const id = randomUUID();
  const ids = { id, trace_id: id, dotted_order: dottedOrder(id) };
  const patch = { patch: [{ ...ids, outputs: { late: true }, end_time: new Date().toISOString() }] };
  expect((await instance.send('POST', '/runs/batch', patch)).status).toBe(202);
  expect(await since.storedRuns()).toEqual(new Set());
  expect(await instance.rowsOf('deferred_events')).toBe(1);
  await instance.runlake.kill();
  await instance.restart();
  expect(await instance.rowsOf('deferred_events')).toBe(1);

  const post = { post: [{ ...ids, name: 'root', run_type: 'chain', start_time: new Date().toISOString() }] };
  expect((await instance.send('POST', '/runs/batch', post)).status).toBe(202);
  await instance.settled();
  expect(await instance.rowsOf('deferred_events')).toBe(0);
  const headers = { 'x-api-key': instance.runlake.apiKey };
  const read = await (await fetch(`${instance.runlake.url}/runs/${id}`, { headers })).json();
  expect(read).toMatchObject({ name: 'root', outputs: { late: true }, status: 'success' });
  expect(await since.countedTraces()).toBe(1);
});
