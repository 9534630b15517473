import pg from 'pg';
import { expect, it } from 'vitest';
import { forSuite } from '../../for-suite.ts';
import { startAgentServer } from './start-agent-server.ts';

/** Leases of runs while rows of one of them are locked for several lease durations. */

const leaseMs = 1_500;
const server = forSuite(() => startAgentServer({ config: { agentsLeaseMs: leaseMs } }));

const slowRun = { input: { steps: 20, pauseMs: 500 } };
const readRunRows = (runIds: readonly string[]) =>
  server.database.query<{ run_id: string; status: string; attempt: number; losses: number }>(
    'SELECT run_id, status, attempt, losses FROM agents.runs WHERE run_id = ANY ($1::uuid[])',
    [runIds],
  );
async function start(): Promise<{ readonly threadId: string; readonly runId: string }> {
  const { thread_id: threadId } = await server.client.threads.create();
  const { run_id: runId } = await server.client.runs.create(threadId, 'steps', slowRun);
  await expect.poll(async () => (await readRunRows([runId]))[0]?.status, { timeout: 10_000 }).toBe('running');
  return { threadId, runId };
}

it('keeps all leases while a run and its thread are locked, and requests wait for the lock', async () => {
  const locked = await start();
  const others = await Promise.all([start(), start(), start(), start()]);
  const runIds = [locked, ...others].map(({ runId }) => runId);
  const client = new pg.Client({ connectionString: server.shared.stores.databaseUrl });
  await client.connect();
  const cancelResponses: Promise<Response>[] = [];
  try {
    await client.query('BEGIN');
    await client.query('SELECT FROM agents.threads WHERE thread_id = $1 FOR UPDATE', [locked.threadId]);
    await client.query('SELECT FROM agents.runs WHERE run_id = $1 FOR UPDATE', [locked.runId]);
    // The cancel requests occupy all connections of the pool.
    const path = `/threads/${locked.threadId}/runs/${locked.runId}/cancel`;
    for (let request = 0; request < 12; request++) cancelResponses.push(server.ask('POST', path));
    const lockedAtMs = performance.now();
    // The lock must last for several leases, measured by the database clock.
    await client.query(`SELECT pg_sleep(${(4 * leaseMs) / 1_000})`);
    expect(performance.now() - lockedAtMs).toBeGreaterThan(3 * leaseMs);
    const { rows } = await client.query('SELECT status, attempt FROM agents.runs WHERE run_id = ANY ($1::uuid[])', [
      runIds,
    ]);
    expect(rows.map(({ status, attempt }) => [status, attempt])).toEqual(runIds.map(() => ['running', 1]));
  } finally {
    await client.query('ROLLBACK');
    await client.end();
  }
  await Promise.all(cancelResponses);
  const done = async () =>
    (await readRunRows(runIds)).every(({ status }) => status !== 'running' && status !== 'pending');
  await expect.poll(done, { timeout: 60_000 }).toBe(true);
  for (const row of await readRunRows(runIds)) {
    const status = row.run_id === locked.runId ? 'interrupted' : 'success';
    expect(row).toMatchObject({ status, attempt: 1, losses: 0 });
  }
}, 120_000);

it('stops and requeues its runs when its heartbeat expires, even if the renewal does not return', async () => {
  const { runId } = await start();
  const client = new pg.Client({ connectionString: server.shared.stores.databaseUrl });
  await client.connect();
  try {
    await client.query('BEGIN');
    await client.query('SELECT FROM agents.processes FOR UPDATE');
    await expect
      .poll(async () => await readRunRows([runId]), { timeout: 20_000 })
      .toMatchObject([{ status: 'pending' }]);
  } finally {
    await client.query('ROLLBACK');
    await client.end();
  }
  await expect.poll(async () => (await readRunRows([runId]))[0]?.status, { timeout: 60_000 }).toBe('success');
  expect(await readRunRows([runId])).toMatchObject([{ attempt: 2 }]);
}, 120_000);

it('requeues a run whose claim was lost, and keeps a run with another fencing token', async () => {
  const { runId } = await start();
  // The same state as if the response to the claim never arrived: no attempt knows the fencing token in the rows of
  // this process.
  await server.database.execute('UPDATE agents.runs SET lease_token = gen_random_uuid() WHERE run_id = $1', [runId]);
  await expect.poll(async () => (await readRunRows([runId]))[0]?.attempt, { timeout: 20_000 }).toBe(2);
  await expect.poll(async () => (await readRunRows([runId]))[0]?.status, { timeout: 60_000 }).toBe('success');
}, 120_000);
