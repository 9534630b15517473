import { beforeEach, expect, it } from 'vitest';
import { openDatabase } from '../../../../infra/postgres/pool.ts';
import { RecentAssistants } from '../../../../pipelines/agents/assistants/assistant.ts';
import { createAssistant } from '../../../../pipelines/agents/assistants/write-assistants.ts';
import { countCrons, createCron } from '../../../../pipelines/agents/crons/write-crons.ts';
import { lockThread } from '../../../../pipelines/agents/runs/lock-thread.ts';
import { listRuns } from '../../../../pipelines/agents/runs/read-run.ts';
import { type RequestDeps, requestRun, requestRuns } from '../../../../pipelines/agents/runs/request-run.ts';
import { readThread } from '../../../../pipelines/agents/threads/thread.ts';
import { leaseThread, updateThreadState } from '../../../../pipelines/agents/threads/update-thread-state.ts';
import { copyThread, createThread } from '../../../../pipelines/agents/threads/write-threads.ts';
import { openFaultProxy } from '../../../crash/fault-proxy.ts';
import { freshStores } from '../../../engines/stores.ts';
import { forSuite } from '../../../for-suite.ts';
import { untilLockWait } from '../../../infra/postgres/lock-waits.ts';
import { logger } from '../../../silent-logger.ts';
import { makeAgentRows } from '../crons/agent-rows.ts';

/** The connection to Postgres breaks after a commit, before its answer arrives. */

const stores = forSuite(() => freshStores());
const proxy = forSuite(() => {
  const { hostname: host, port } = new URL(stores.databaseUrl);
  return openFaultProxy([{ host, port: Number(port) }]);
});
const viaProxy = forSuite(() => {
  const url = new URL(stores.databaseUrl);
  url.port = String(proxy.ports[0]);
  return openDatabase({ url: url.href, logger, timeoutMs: 10_000 });
});
let rows: Awaited<ReturnType<typeof makeAgentRows>>;
beforeEach(async () => {
  rows = await makeAgentRows(stores.database);
});

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
  hub: undefined as never,
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

const list = () => listRuns(stores.database, rows.deploymentId, rows.threadId, { limit: 9, offset: 0 });

it.each([0, 1])('the runs of a batch are created once, also if %i are deleted meanwhile', async (deleted) => {
  const listStored = () =>
    stores.database.query<{ run_id: string }>(
      'SELECT run_id FROM agents.runs WHERE deployment_id = $1 ORDER BY queue_position',
      [rows.deploymentId],
    );
  const lost = loseAnswer('COMMIT', async () => {
    const ids = (await listStored()).slice(0, deleted).map(({ run_id }) => run_id);
    await stores.database.execute('DELETE FROM agents.runs WHERE run_id = ANY ($1)', [ids]);
  });
  const runs = await requestRuns(buildDeps(), [buildRequest('enqueue'), buildRequest('enqueue')]);
  await lost;
  expect(runs).toHaveLength(2);
  expect(runs.slice(deleted).map(({ run_id }) => ({ run_id }))).toEqual(await listStored());
});

it('a run whose statement does not arrive is created after the outage', async () => {
  const lost = proxy
    .hold('before', (message) => message.includes('add_run'))
    .then(() => {
      proxy.away(true);
      setTimeout(() => proxy.away(false), 100);
    });
  const { run } = await startRun('enqueue');
  await lost;
  expect(await list()).toEqual([run]);
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
