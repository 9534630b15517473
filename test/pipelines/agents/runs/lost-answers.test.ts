import { randomUUID } from 'node:crypto';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { openDatabase } from '../../../../infra/postgres/pool.ts';
import { RecentAssistants } from '../../../../pipelines/agents/assistants/assistant.ts';
import { createAssistant } from '../../../../pipelines/agents/assistants/write-assistants.ts';
import { countCrons, createCron } from '../../../../pipelines/agents/crons/write-crons.ts';
import { encodeRunEnd } from '../../../../pipelines/agents/execute/publish-end.ts';
import { claimRuns } from '../../../../pipelines/agents/runs/claim-runs.ts';
import { endRun } from '../../../../pipelines/agents/runs/end-run.ts';
import { lockThread } from '../../../../pipelines/agents/runs/lock-thread.ts';
import { markEndsPublished } from '../../../../pipelines/agents/runs/published-ends.ts';
import { listRuns } from '../../../../pipelines/agents/runs/read-run.ts';
import { type RequestDeps, requestRun, requestRuns } from '../../../../pipelines/agents/runs/request-run.ts';
import type { Run } from '../../../../pipelines/agents/runs/run.ts';
import type { EndedRun } from '../../../../pipelines/agents/runs/run-row.ts';
import { type StreamHub, toStreamStart } from '../../../../pipelines/agents/streams/stream-types.ts';
import { readThread } from '../../../../pipelines/agents/threads/thread.ts';
import { leaseThread, updateThreadState } from '../../../../pipelines/agents/threads/update-thread-state.ts';
import { copyThread, createThread } from '../../../../pipelines/agents/threads/write-threads.ts';
import { openFaultProxy } from '../../../crash/fault-proxy.ts';
import type { FreshStores } from '../../../engines/stores.ts';
import { forSuite } from '../../../for-suite.ts';
import { untilLockWait } from '../../../infra/postgres/lock-waits.ts';
import { logger } from '../../../silent-logger.ts';
import { makeAgentRows } from '../crons/agent-rows.ts';
import { chunk, openStreams } from '../streams/streams-under-test.ts';

/** The connection to Postgres breaks after a commit, before its answer arrives. */

const under = forSuite(() => openStreams());
const proxy = forSuite(() => {
  const { hostname: host, port } = new URL(under.stores.databaseUrl);
  return openFaultProxy([{ host, port: Number(port) }]);
});
const viaProxy = forSuite(() => {
  const url = new URL(under.stores.databaseUrl);
  url.port = String(proxy.ports[0]);
  return openDatabase({ url: url.href, logger, timeoutMs: 10_000 });
});
let stores: FreshStores;
let rows: Awaited<ReturnType<typeof makeAgentRows>>;
let hub: StreamHub;
beforeEach(async () => {
  ({ stores } = under);
  rows = await makeAgentRows(stores.database);
  hub = await under.hub({ deploymentId: rows.deploymentId });
});
afterEach(() => hub.close());

/** Breaks all connections when the request with `text` is answered, before the answer arrives, and until `work` is done. */
async function loseAnswer(text: string, work?: () => Promise<unknown>): Promise<void> {
  await proxy.hold('answered', (message) => message.includes(text));
  proxy.away(true);
  await work?.();
  setTimeout(() => proxy.away(false), 100);
}

const buildDeps = (): RequestDeps => ({
  deploymentId: rows.deploymentId,
  organizationId: rows.deploymentId,
  database: viaProxy,
  hub,
  wake: () => undefined,
  recentAssistants: new RecentAssistants(),
  getNodes: () => undefined,
  threadTtl: undefined,
  copiesHeader: () => false,
  webhooks: { check: () => undefined },
  acceptsFeedbackKeys: false,
});

const buildRequest = (multitaskStrategy: 'enqueue' | 'interrupt' | 'reject', threadId?: string) => ({
  request: { assistant_id: rows.assistantId, input: { text: 'a' }, multitask_strategy: multitaskStrategy },
  threadId,
  sender: { userId: rows.deploymentId, keyId: rows.deploymentId, workspaceId: undefined },
  headers: {},
});

const startRun = (multitaskStrategy: 'enqueue' | 'interrupt' | 'reject') =>
  requestRun(buildDeps(), buildRequest(multitaskStrategy, rows.threadId));

it.each(['enqueue', 'interrupt', 'reject'] as const)(
  'a run is created once, with the strategy %s',
  async (strategy) => {
    const lost = loseAnswer('add_run');
    const { run } = await startRun(strategy);
    await lost;
    expect(await list()).toEqual([run]);
    expect(run).toMatchObject({ status: 'pending', kwargs: { input: { text: 'a' } } });
  },
);

const list = (threadId = rows.threadId) =>
  listRuns(stores.database, rows.deploymentId, threadId, { limit: 9, offset: 0 });

/** Executes runs that are due, as a process does. @returns their ids */
async function executeRuns(slots: number): Promise<string[]> {
  const { database } = stores;
  const { deploymentId } = rows;
  const claimed = await claimRuns(database, deploymentId, { slots, processId: randomUUID() });
  const publisher = under.publisher();
  for (const run of claimed) {
    const writer = publisher.open(toStreamStart(run));
    await writer.write([chunk('an event')]);
    await writer.settled();
    const ended = (await endRun(database, run, { status: 'success', values: '{}' })) as EndedRun;
    const endedAtMicros = Date.parse(ended.endedAt) * 1_000;
    await publisher.publishEnd({ ...toStreamStart(ended), data: encodeRunEnd(ended, undefined), endedAtMicros });
    await markEndsPublished(database, [ended]);
  }
  return claimed.map(({ runId }) => runId);
}

const requestBatch = () => requestRuns(buildDeps(), [buildRequest('enqueue'), buildRequest('enqueue')]);

it.each<[what: string, statement: string, ended: number, request: () => Promise<Run[]>]>([
  ['a run', 'add_run', 1, async () => [(await requestRun(buildDeps(), buildRequest('enqueue'))).run]],
  ['a batch', 'COMMIT', 0, requestBatch],
  ['a batch', 'COMMIT', 1, requestBatch],
  ['a batch', 'COMMIT', 2, requestBatch],
])(
  '%s without a thread is executed once (%s), also if %i runs have ended meanwhile',
  async (_, statement, ended, request) => {
    const executed: string[] = [];
    const lost = loseAnswer(statement, async () => {
      if (ended > 0) executed.push(...(await executeRuns(ended)));
    });
    const runs = await request();
    await lost;
    expect(executed).toHaveLength(ended);
    executed.push(...(await executeRuns(9)));
    expect(executed.sort()).toEqual(runs.map(({ run_id }) => run_id).sort());
    expect(runs[0]).toMatchObject({ status: 'pending', kwargs: { input: { text: 'a' }, temporary: true } });
  },
);

it.each([
  ['', () => startRun('enqueue')],
  [' without a thread', () => requestRun(buildDeps(), buildRequest('enqueue'))],
])('a run%s whose statement does not arrive is created after the outage', async (_, start) => {
  const lost = proxy
    .hold('before', (message) => message.includes('add_run'))
    .then(() => {
      proxy.away(true);
      setTimeout(() => proxy.away(false), 100);
    });
  const { run } = await start();
  await lost;
  expect(await list(run.thread_id)).toEqual([run]);
});

it.each(['enqueue', 'interrupt', 'reject'] as const)(
  'a run is created once if the connection breaks while Postgres waits for the thread, with the strategy %s',
  async (strategy) => {
    const sent = proxy.hold('sent', (message) => message.includes('add_run'));
    let created: ReturnType<typeof startRun> | undefined;
    await stores.database.transaction(async (tx) => {
      await lockThread(tx, rows.deploymentId, rows.threadId);
      created = startRun(strategy);
      await sent;
      proxy.away(true);
      proxy.away(false);
      await untilLockWait(stores.database, '%', 2);
    });
    const run = (await created)?.run;
    expect(run).toMatchObject({ status: 'pending' });
    expect(await list()).toEqual([run]);
  },
);

it('a cron is created once', async () => {
  const lost = loseAnswer('COMMIT');
  const cron = {
    ...{ assistant_id: rows.assistantId, thread_id: rows.threadId, schedule: '0 9 * * *', timezone: null },
    ...{ end_time: null, on_run_completed: null, enabled: true, payload: {}, metadata: {}, user_id: null },
  };
  const created = await createCron(viaProxy, rows.deploymentId, cron, { maxCrons: 10 });
  await lost;
  expect(created).toMatchObject({ thread_id: rows.threadId, enabled: true });
  expect(await countCrons(stores.database, rows.deploymentId, {})).toBe(1);
});

it('an assistant is created once', async () => {
  const lost = loseAnswer('COMMIT');
  const assistant = { graphId: 'echo', name: 'once', ifExists: 'raise' } as const;
  const created = await createAssistant(viaProxy, rows.deploymentId, assistant, { maxAssistants: 10 });
  await lost;
  const stored = await stores.database.query("SELECT assistant_id FROM agents.assistants WHERE name = 'once'");
  expect(stored).toEqual([{ assistant_id: created.assistant_id }]);
});

it('a thread is copied once', async () => {
  const thread = { metadata: { of: 'copy' }, ifExists: 'raise' } as const;
  const { thread_id: threadId } = await createThread(stores.database, rows.deploymentId, thread);
  const lost = loseAnswer('COMMIT');
  const { copy } = await copyThread(viaProxy, rows.deploymentId, threadId, { kind: 'copy' });
  await lost;
  const copies = `SELECT thread_id FROM agents.threads WHERE metadata @> '{"kind": "copy"}'`;
  expect(await stores.database.query(copies)).toEqual([{ thread_id: copy.thread_id }]);
});

it.each([
  ['its result is written to the row of the thread', 'state_updated_at = clock'],
  ['its lease is released', 'write_token = NULL'],
])('an update of the state is applied once, if the connection breaks when %s', async (_, statement) => {
  const { database } = stores;
  const { deploymentId } = rows;
  const thread = { metadata: { graph_id: 'echo' }, ifExists: 'raise' } as const;
  const { thread_id: threadId } = await createThread(database, deploymentId, thread);
  let updates = 0;
  const checkpoint = { thread_id: threadId, checkpoint_ns: '', checkpoint_id: '1' };
  const pool = {
    query: async () => {
      updates += 1;
      return JSON.stringify({ checkpoint, state: { values: { n: updates }, next: [] }, interrupts: {} });
    },
  };
  const publishedStarts: number[] = [];
  const publishState = async ({ threadStart }: { readonly threadStart: number }) =>
    void publishedStarts.push(threadStart);
  const lost = loseAnswer(statement);
  const deps = { database: viaProxy, deploymentId, pool, publishState, logger };
  expect(await updateThreadState(deps, threadId, { updates: [[{ values: { n: 1 } }]] })).toEqual(checkpoint);
  await lost;
  expect(updates).toBe(1);
  // Each start number is that of one update.
  const rowsOfThread = await database.query('SELECT starts FROM agents.threads WHERE thread_id = $1', [threadId]);
  expect([publishedStarts, rowsOfThread]).toEqual([[1], [{ starts: 1 }]]);
  expect(await readThread(database, deploymentId, threadId)).toMatchObject({ values: { n: 1 } });
  // The lease is released.
  await leaseThread(database, deploymentId, threadId, 60_000);
});
