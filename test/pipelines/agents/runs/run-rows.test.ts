import { randomUUID } from 'node:crypto';
import { beforeAll, describe, expect, it } from 'vitest';
import type { Sql } from '../../../../infra/postgres/database.ts';
import { deleteAssistant } from '../../../../pipelines/agents/assistants/write-assistants.ts';
import { buildThreadKey } from '../../../../pipelines/agents/checkpoints/copy-checkpoints.ts';
import { cancelRun, cancelRuns } from '../../../../pipelines/agents/runs/cancel-run.ts';
import { claimRuns, getMsToNextRun } from '../../../../pipelines/agents/runs/claim-runs.ts';
import { createRun, type NewRun } from '../../../../pipelines/agents/runs/create-run.ts';
import { deleteRun } from '../../../../pipelines/agents/runs/delete-run.ts';
import { endRun, releaseRun } from '../../../../pipelines/agents/runs/end-run.ts';
import { claimUnpublishedEnds, markEndsPublished } from '../../../../pipelines/agents/runs/published-ends.ts';
import { listRuns, readRun } from '../../../../pipelines/agents/runs/read-run.ts';
import type { Run } from '../../../../pipelines/agents/runs/run.ts';
import type { ClaimedRun } from '../../../../pipelines/agents/runs/run-row.ts';
import { deleteThread } from '../../../../pipelines/agents/threads/delete-thread.ts';
import { readThread } from '../../../../pipelines/agents/threads/thread.ts';
import { leaseThread } from '../../../../pipelines/agents/threads/update-thread-state.ts';
import { createProxyTo, forSuite } from '../../../for-suite.ts';
import { assistant, kwargs, leaseMs, newRun, openRows, processId } from './run-rows.ts';

const rows = forSuite(() => openRows());
const database = createProxyTo(() => rows.database);
let org: string;
beforeAll(() => {
  ({ org } = rows);
});

async function claim(runId: string): Promise<ClaimedRun> {
  const claims = await claimRuns(database, org, { slots: 100, processId });
  const found = claims.find((run) => run.runId === runId);
  if (found === undefined) throw new Error('not claimed');
  return found;
}

const ids = (run: { readonly thread_id: string; readonly run_id: string }) => ({
  threadId: run.thread_id,
  runId: run.run_id,
});
const goneRun = { code: 'RUN_NOT_FOUND', status: 404 };

describe('creating runs', () => {
  it('marks the thread busy, records graph and assistant on it, and stores the input unchanged', async () => {
    const threadId = await rows.newThread();
    const input = { text: 'nul \u0000, half \ud800' };
    const given = newRun(threadId, { metadata: { a: 1 } });
    const run = await createRun(database, org, { ...given, kwargs: { ...given.kwargs, input } });
    expect(await readRun(database, org, ids(run))).toEqual(run);
    expect(run).toMatchObject({ status: 'pending', metadata: { a: 1 }, kwargs: { input }, thread_id: threadId });
    expect(await readThread(database, org, threadId)).toMatchObject({ status: 'busy', metadata: given.assistant });
  });

  it.each([
    ['a thread that does not exist', { ifNotExists: 'reject' as const }, 'THREAD_NOT_FOUND'],
    [
      'metadata that Postgres cannot store',
      { ifNotExists: 'create' as const, metadata: { a: '\u0000' } },
      'INVALID_REQUEST',
    ],
  ])('refuses %s', async (_name, more, code) => {
    await expect(rows.run(randomUUID(), more)).rejects.toMatchObject({ code });
  });

  it('creates a missing thread on request, once for concurrent requests', async () => {
    const threadId = randomUUID();
    const made = await Promise.all([1, 2, 3].map(() => rows.run(threadId, { ifNotExists: 'create' })));
    expect(new Set(made.map(({ thread_id }) => thread_id))).toEqual(new Set([threadId]));
    expect(await listRuns(database, org, threadId, { limit: 10, offset: 0 })).toHaveLength(3);
  });

  it('runs in the given transaction', async () => {
    const threadId = await rows.newThread();
    const making = database.transaction(async (tx) => {
      await createRun(tx, org, newRun(threadId));
      throw new Error('undone');
    });
    await expect(making).rejects.toThrow('undone');
    expect(await readThread(database, org, threadId)).toMatchObject({ status: 'idle' });
  });

  it('does not start a run before it is due, and starts other runs of the thread first', async () => {
    const other = await rows.newDeployment();
    const threadId = await rows.newThread(other);
    const later = await rows.run(threadId, { afterSeconds: 3_600 }, other);
    expect(await claimRuns(database, other, { slots: 9, processId })).toEqual([]);
    expect(await getMsToNextRun(database, other, 20)).toBeGreaterThan(3_500_000);
    expect(await readThread(database, other, threadId)).toMatchObject({ status: 'busy' });
    const now = await rows.run(threadId, {}, other);
    const [claimed] = await claimRuns(database, other, { slots: 9, processId });
    expect(claimed?.runId).toBe(now.run_id);
    await database.execute('UPDATE agents.runs SET due_at = now() WHERE run_id = $1', [later.run_id]);
    await endRun(database, claimed as ClaimedRun, { status: 'success' });
    expect(await claimRuns(database, other, { slots: 9, processId })).toMatchObject([{ runId: later.run_id }]);
  });

  it('gets a run as it was created, in every attempt', async () => {
    const threadId = await rows.newThread();
    await rows.checkpoint(buildThreadKey(org, threadId), '1');
    const input = { text: 'nul \u0000, half \ud800' };
    const given = newRun(threadId, { metadata: { a: 1 }, kwargs: kwargs({ input }) });
    const run = await createRun(database, org, given);
    const claimed = await claim(run.run_id);
    const expected = { attempt: 1, threadStart: 1, baseCheckpointId: '1', alone: false };
    expect(claimed).toMatchObject({ ...expected, kwargs: { input }, metadata: { a: 1 } });
    expect(await readThread(database, org, threadId)).toMatchObject({ status: 'busy', metadata: given.assistant });
    await releaseRun(database, claimed, { alone: false, countsAsLost: false });
    const { leaseToken: _, ...again } = await claim(run.run_id);
    const { leaseToken: __, ...first } = claimed;
    expect(again).toEqual({ ...first, attempt: 2, threadStart: 2 });
    expect(await endRun(database, claimed, { status: 'success' })).toBeUndefined();
  });

  it.each<[what: string, first: (threadId: string) => Promise<unknown>, more?: Partial<NewRun>]>([
    ['another run of the thread is running', async (threadId) => claim((await rows.run(threadId)).run_id)],
    ['the thread is leased by a writer', (threadId) => leaseThread(database, org, threadId, leaseMs)],
    ['it is not due yet', async () => undefined, { afterSeconds: 3_600 }],
    [
      'it interrupts another run',
      async (threadId) => claim((await rows.run(threadId)).run_id),
      { multitaskStrategy: 'interrupt' },
    ],
  ])('does not get a run if %s', async (_, first, more = {}) => {
    const threadId = await rows.newThread();
    await first(threadId);
    const run = await createRun(database, org, newRun(threadId, more));
    const claimed = await claimRuns(database, org, { slots: 100, processId });
    expect(claimed.map(({ runId }) => runId)).not.toContain(run.run_id);
    expect(await readRun(database, org, ids(run))).toMatchObject({ status: 'pending' });
  });

  it('gets a run on a thread with an expired write lease, and on a new thread', async () => {
    const threadId = await rows.newThread();
    await leaseThread(database, org, threadId, -1);
    const onThread = await createRun(database, org, newRun(threadId));
    expect(await claim(onThread.run_id)).toMatchObject({ threadId });
    const own = await createRun(database, org, newRun(undefined, { temporary: true }));
    expect(await claim(own.run_id)).toMatchObject({ threadStart: 1, baseCheckpointId: undefined });
  });

  it('hides runs from other deployments', async () => {
    const run = await rows.run(await rows.newThread());
    const { foreignOrg } = rows;
    expect(await claimRuns(database, foreignOrg, { slots: 9, processId })).toEqual([]);
    const tries: (() => Promise<unknown>)[] = [
      () => readRun(database, foreignOrg, ids(run)),
      () => cancelRun(database, foreignOrg, ids(run), 'interrupt'),
      () => deleteRun(database, foreignOrg, ids(run)),
    ];
    for (const attempt of tries) await expect(attempt()).rejects.toMatchObject(goneRun);
    const making = createRun(database, foreignOrg, newRun(run.thread_id));
    await expect(making).rejects.toMatchObject({ code: 'THREAD_NOT_FOUND' });
    expect(await listRuns(database, foreignOrg, run.thread_id, { limit: 9, offset: 0 })).toEqual([]);
    await cancelRuns(database, foreignOrg, { status: 'all' }, 'rollback');
    const claimed = await claim(run.run_id);
    expect(await rows.leases(foreignOrg, [claimed.leaseToken])).toEqual([]);
    expect(await rows.leases(org, [claimed.leaseToken])).toHaveLength(1);
  });
});

describe('run ends', () => {
  it('update the visible state of the thread, including NUL characters', async () => {
    const threadId = await rows.newThread();
    const run = await rows.run(threadId);
    const values = JSON.stringify({ text: 'a\u0000b' });
    const interrupts = { task: [{ id: 'i', value: 1 }] };
    await endRun(database, await claim(run.run_id), { status: 'success', values, next: ['ask'], interrupts });
    const thread = await readThread(database, org, threadId);
    expect(thread).toMatchObject({ status: 'interrupted', values: { text: 'a\u0000b' }, interrupts, error: null });
    const failing = await rows.run(threadId);
    const error = { error: 'TypeError', message: 'no' };
    await endRun(database, await claim(failing.run_id), { status: 'error', error });
    expect(await readThread(database, org, threadId)).toMatchObject({
      status: 'error',
      values: { text: 'a\u0000b' },
      error,
    });
  });

  it('of a rollback delete checkpoints and run, and restore the thread', async () => {
    const threadId = await rows.newThread();
    const key = buildThreadKey(org, threadId);
    await rows.checkpoint(key, '1');
    const run = await rows.run(threadId);
    const claimed = await claim(run.run_id);
    expect(claimed.baseCheckpointId).toBe('1');
    await rows.checkpoint(key, '2', run.run_id);
    const next = await rows.run(threadId, { multitaskStrategy: 'rollback' });
    expect(await rows.leases(org, [claimed.leaseToken])).toEqual([
      { leaseToken: claimed.leaseToken, cancelAction: 'rollback' },
    ]);
    const ended = await endRun(database, claimed, { status: 'interrupted' });
    expect(await rows.listCheckpointIds(key)).toEqual(['1']);
    await expect(readRun(database, org, ids(run))).rejects.toMatchObject(goneRun);
    // The end of the run still has to be published, by this or another process.
    expect(await claimUnpublishedEnds(database, org, 0)).toContainEqual(ended);
    await markEndsPublished(database, [ended as NonNullable<typeof ended>]);
    expect((await claimUnpublishedEnds(database, org, 0)).map(({ runId }) => runId)).not.toContain(run.run_id);
    expect(await claim(next.run_id)).toMatchObject({ attempt: 1, threadStart: 2, baseCheckpointId: '1' });
  });

  it.each([
    [
      'after an interrupt',
      'success' as const,
      async (run: Run) => {
        await cancelRun(database, org, ids(run), 'interrupt');
        await cancelRun(database, org, ids(run), 'rollback');
      },
    ],
    ['after the outcome', 'success' as const, (run: Run) => cancelRun(database, org, ids(run), 'rollback')],
    ['before a failure', 'error' as const, (run: Run) => cancelRun(database, org, ids(run), 'rollback')],
    ['by the next run', 'success' as const, (run: Run) => rows.run(run.thread_id, { multitaskStrategy: 'rollback' })],
  ])('carry out a rollback requested %s', async (_, status, ask) => {
    const threadId = await rows.newThread();
    const key = buildThreadKey(org, threadId);
    await rows.checkpoint(key, '1');
    const run = await rows.run(threadId);
    const claimed = await claim(run.run_id);
    await rows.checkpoint(key, '2', run.run_id);
    await ask(run);
    const ended = await endRun(database, claimed, { status, values: '{"kept":1}' });
    expect(ended).toMatchObject({ status: 'interrupted', removed: true });
    expect(ended).not.toHaveProperty('values');
    expect(await rows.listCheckpointIds(key)).toEqual(['1']);
    expect((await readThread(database, org, threadId)).values).toBeNull();
    await expect(readRun(database, org, ids(run))).rejects.toMatchObject(goneRun);
  });

  it('refuse a later rollback', async () => {
    const run = await rows.run(await rows.newThread());
    await endRun(database, await claim(run.run_id), { status: 'success', values: '{}' });
    const refused = { code: 'RUN_ENDED', status: 409 };
    await expect(cancelRun(database, org, ids(run), 'rollback')).rejects.toMatchObject(refused);
    await cancelRun(database, org, ids(run), 'interrupt');
    expect(await readRun(database, org, ids(run))).toMatchObject({ status: 'success' });
  });

  it('of a temporary run leave no rows once published', async () => {
    const run = await rows.run(undefined, { temporary: true });
    await expect(readThread(database, org, run.thread_id)).rejects.toMatchObject({ code: 'THREAD_NOT_FOUND' });
    const claimed = await claim(run.run_id);
    await rows.checkpoint(buildThreadKey(org, run.thread_id), '1', run.run_id);
    const ended = await endRun(database, claimed, { status: 'success', values: '{"a":1}' });
    expect(ended).toMatchObject({ values: '{"a":1}' });
    await markEndsPublished(database, [ended as NonNullable<typeof ended>]);
    const left = await database.query(
      `SELECT thread_id::text FROM agents.threads WHERE thread_id = $1 UNION ALL SELECT thread_id::text FROM agents.runs
       WHERE thread_id = $1 UNION ALL SELECT thread_id FROM agents.checkpoints WHERE thread_id LIKE '%' || $1::uuid::text`,
      [run.thread_id],
    );
    expect(left).toEqual([]);
  });

  it('are published for runs of a deleted thread, which write nothing more', async () => {
    const threadId = await rows.newThread();
    const [running, waiting] = [await rows.run(threadId), await rows.run(threadId)];
    const claimed = await claim(running.run_id);
    await rows.checkpoint(buildThreadKey(org, threadId), '1', running.run_id);
    await deleteThread(database, org, threadId);
    expect(await endRun(database, claimed, { status: 'success', values: '{}' })).toBeUndefined();
    expect(await rows.leases(org, [claimed.leaseToken])).toEqual([]);
    expect(await rows.listCheckpointIds(buildThreadKey(org, threadId))).toEqual([]);
    // These ends can be claimed at once: no process is about to publish them.
    const ends = await claimUnpublishedEnds(database, org, 60_000);
    for (const run of [running, waiting]) {
      await expect(readRun(database, org, ids(run))).rejects.toMatchObject(goneRun);
      const ended = ends.find(({ runId }) => runId === run.run_id);
      expect(ended).toMatchObject({ status: 'interrupted', removed: true, attempt: run === running ? 1 : 0 });
      await markEndsPublished(database, [ended as NonNullable<typeof ended>]);
    }
    expect(await database.query('SELECT FROM agents.runs WHERE thread_id = $1', [threadId])).toEqual([]);
    // The id can be reused in the meantime.
    await rows.run(threadId, { ifNotExists: 'create' });
    await deleteThread(database, org, threadId);
  });

  it.each(['thread', 'assistant'] as const)('of unfinished runs of a deleted %s call their webhooks', async (what) => {
    const threadId = await rows.newThread();
    const webhook = 'https://hooks.example/';
    const own = { ...assistant, assistant_id: randomUUID() };
    await database.execute(
      `INSERT INTO agents.assistants (deployment_id, assistant_id, graph_id, name, metadata) VALUES ($1, $2, 'echo', 'own', '{}')`,
      [org, own.assistant_id],
    );
    const start = () => rows.run(threadId, { assistant: own, kwargs: kwargs({ webhook }) });
    const ended = await start();
    await endRun(database, await claim(ended.run_id), { status: 'success', values: '{}' });
    const [running, waiting] = [await start(), await start()];
    await claim(running.run_id);
    if (what === 'thread') await deleteThread(database, org, threadId);
    else await deleteAssistant(database, org, own.assistant_id, {});
    const webhooks = await database.query(
      `SELECT run_id, url, body ->> 'status' AS status FROM agents.webhooks
       WHERE body ->> 'thread_id' = $1 ORDER BY body ->> 'created_at'`,
      [threadId],
    );
    expect(webhooks).toEqual([
      { run_id: ended.run_id, url: webhook, status: 'success' },
      { run_id: running.run_id, url: webhook, status: 'interrupted' },
      { run_id: waiting.run_id, url: webhook, status: 'interrupted' },
    ]);
  });
});

it('claims unpublished ends for one process, and for another one after the claim expired', async () => {
  const other = await rows.newDeployment();
  const made = await Promise.all(
    Array.from({ length: 12 }, async () => rows.run(await rows.newThread(other), {}, other)),
  );
  await cancelRuns(database, other, { status: 'pending' }, 'interrupt');
  const claims = await Promise.all(Array.from({ length: 4 }, () => claimUnpublishedEnds(database, other, 60_000)));
  const claimed = claims.flat().map(({ runId }) => runId);
  expect(claimed.sort()).toEqual(made.map(({ run_id }) => run_id).sort());
  expect(await claimUnpublishedEnds(database, other, 60_000)).toEqual([]);
  // Simulates a minute later.
  await database.execute(
    `UPDATE agents.runs SET end_claimed_until = end_claimed_until - interval '1 minute' WHERE deployment_id = $1`,
    [other],
  );
  const again = await claimUnpublishedEnds(database, other, 60_000);
  expect(again.map(({ endedAt }) => endedAt)).toEqual(again.map(({ endedAt }) => endedAt).sort());
  expect(again).toHaveLength(12);
  await markEndsPublished(database, again);
  expect(await claimUnpublishedEnds(database, other, 0)).toEqual([]);
});

describe('many runs', () => {
  it('are listed newest first, in pages and by status', async () => {
    const threadId = await rows.newThread();
    const made = [await rows.run(threadId), await rows.run(threadId), await rows.run(threadId)].map(
      ({ run_id }) => run_id,
    );
    await cancelRuns(database, org, { threadId, runIds: [made[1] as string] }, 'interrupt');
    const list = async (more: object) =>
      (await listRuns(database, org, threadId, { limit: 9, offset: 0, ...more })).map(({ run_id }) => run_id);
    expect(await list({})).toEqual([made[2], made[1], made[0]]);
    expect(await list({ limit: 1, offset: 1 })).toEqual([made[1]]);
    expect(await list({ status: 'pending' })).toEqual([made[2], made[0]]);
  });

  it('are cancelled together, or not at all if one is missing', async () => {
    const other = await rows.newDeployment();
    const threadId = await rows.newThread(other);
    const [first, second] = [await rows.run(threadId, {}, other), await rows.run(threadId, {}, other)];
    const missing = { threadId, runIds: [second.run_id, randomUUID()] };
    await expect(cancelRuns(database, other, missing, 'rollback')).rejects.toMatchObject(goneRun);
    const [claimed] = await claimRuns(database, other, { slots: 1, processId });
    await cancelRuns(database, other, { status: 'pending' }, 'interrupt');
    expect(await readRun(database, other, ids(second))).toMatchObject({ status: 'interrupted' });
    expect(await readRun(database, other, ids(first))).toMatchObject({ status: 'running' });
    await cancelRuns(database, other, { status: 'all' }, 'interrupt');
    expect(await rows.leases(other, [claimed?.leaseToken as string])).toMatchObject([{ cancelAction: 'interrupt' }]);
  });
});

it('claims by scanning only threads with a run to start, however many runs have ended or are pending', async () => {
  const other = await rows.newDeployment();
  const busy = await rows.newThread(other);
  await rows.run(busy, {}, other);
  await database.execute(
    `INSERT INTO agents.threads (deployment_id, thread_id) SELECT $1, gen_random_uuid() FROM generate_series(1, 5000)`,
    [other],
  );
  await database.execute(
    `INSERT INTO agents.runs (deployment_id, thread_id, run_id, assistant_id, graph_id, kwargs, status)
     SELECT $1, $2, gen_random_uuid(), $2, 'echo', '{}', CASE WHEN n % 2 = 0 THEN 'success' ELSE 'pending' END
     FROM generate_series(1, 20000) n`,
    [other, busy],
  );
  await database.execute('ANALYZE agents.threads, agents.runs');
  // On tables these are sequential scans. The counters are per connection, so the test compares their values before and
  // after.
  const readScans = async (tx: Sql) =>
    tx.query<{ of: string; scans: number }>(
      `SELECT relname AS of, pg_stat_get_xact_numscans(oid) AS scans FROM pg_class
       WHERE relnamespace = 'agents'::regnamespace AND relname IN ('runs', 'threads', 'runs_pending', 'threads_waiting') ORDER BY of`,
    );
  const [before, claimed, after] = await database.transaction(async (tx) => [
    await readScans(tx),
    await claimRuns(tx, other, { slots: 5, processId }),
    await readScans(tx),
  ]);
  expect(claimed).toHaveLength(1);
  const made = after.map(({ of, scans }, index) => `${of} ${scans > before[index]!.scans}`);
  expect(made).toEqual(['runs false', 'runs_pending true', 'threads false', 'threads_waiting true']);
});
