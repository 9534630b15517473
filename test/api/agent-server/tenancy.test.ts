import type { FastifyInstance } from 'fastify';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { buildAgentApi } from '../../../api/agent-server/agent-api.ts';
import type { AgentServices, Agents } from '../../../api/agent-server/agent-operation.ts';
import { agentOperations } from '../../../api/agent-server/operations.ts';
import { openEventLog } from '../../../api/command-line/open-event-log.ts';
import { ShutdownSteps } from '../../../api/command-line/shutdown-steps.ts';
import { buildServer } from '../../../api/server/build-server.ts';
import { loadConfig } from '../../../infra/config/load.ts';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Database } from '../../../infra/postgres/database.ts';
import { RecentAssistants } from '../../../pipelines/agents/assistants/assistant.ts';
import { createAssistant, ensureSystemAssistants } from '../../../pipelines/agents/assistants/write-assistants.ts';
import { createCron } from '../../../pipelines/agents/crons/write-crons.ts';
import { createRun } from '../../../pipelines/agents/runs/create-run.ts';
import { createHeaderRule } from '../../../pipelines/agents/runs/run-request.ts';
import { putItems } from '../../../pipelines/agents/store/write-items.ts';
import { openStreamHub } from '../../../pipelines/agents/streams/stream-hub.ts';
import { createThread } from '../../../pipelines/agents/threads/write-threads.ts';
import { buildWebhookRules } from '../../../pipelines/agents/webhooks/webhook-rules.ts';
import { createAuthenticator } from '../../../pipelines/tenants/authenticate.ts';
import { addOrganizationDeployment } from '../../agents/add-deployment.ts';
import { freshStores } from '../../engines/stores.ts';
import { kwargs } from '../../pipelines/agents/runs/run-rows.ts';
import { watchErrors } from '../declared-errors.ts';
import { addKey, addOrganization, type OrganizationUnderTest } from '../start-api.ts';

/**
 * No operation of the agent server gives access to another organisation, workspace or deployment.
 *
 * The server is the default deployment of the stranger. Zebra's deployment and a second deployment of the stranger have
 * rows in the same tables, all containing the word `okapi`. Every operation rejects zebra's keys and the keys of the
 * stranger's second workspace. The stranger's own key tries the ids of both victims on every operation: no response may
 * contain the word, and the rows of the victims must not change.
 */
interface Victim {
  readonly threadId: string;
  readonly assistantId: string;
  readonly runId: string;
  readonly cronId: string;
}

interface Attempt {
  readonly url: string;
  readonly payload?: object;
  /** Statuses that the stranger may get. */
  readonly answers: readonly number[];
}

const notFound = [404];
const own = [200];
/** Namespace and key of an item that zebra has, too. */
const item = { namespace: ['animals'], key: 'striped' };
/** Request for a run on a thread of zebra, with a graph that the stranger may run. */
const echoPayload = { assistant_id: 'echo', input: {} };
const run = ({ assistantId }: Victim) => ({ assistant_id: assistantId, input: {} });

/** One entry per operation that needs a key. An operation without an entry fails the test. */
const attempts: Readonly<Record<string, (victim: Victim) => Attempt>> = {
  truncate: () => ({ url: '/internal/truncate', payload: { threads: true, assistants: true }, answers: [204] }),
  getUiComponent: () => ({ url: '/ui/echo', payload: { name: 'card' }, answers: notFound }),
  createAssistant: ({ assistantId }) => ({
    url: '/assistants',
    payload: { assistant_id: assistantId, graph_id: 'echo', if_exists: 'do_nothing' },
    answers: own,
  }),
  searchAssistants: () => ({ url: '/assistants/search', payload: { metadata: { animal: 'okapi' } }, answers: own }),
  countAssistants: () => ({ url: '/assistants/count', payload: {}, answers: own }),
  getAssistant: ({ assistantId }) => ({ url: `/assistants/${assistantId}`, answers: notFound }),
  updateAssistant: ({ assistantId }) => ({
    url: `/assistants/${assistantId}`,
    payload: { name: 'stolen' },
    answers: notFound,
  }),
  deleteAssistant: ({ assistantId }) => ({ url: `/assistants/${assistantId}?delete_threads=true`, answers: notFound }),
  getAssistantGraph: ({ assistantId }) => ({ url: `/assistants/${assistantId}/graph`, answers: notFound }),
  getAssistantSchemas: ({ assistantId }) => ({ url: `/assistants/${assistantId}/schemas`, answers: notFound }),
  getAssistantSubgraphs: ({ assistantId }) => ({ url: `/assistants/${assistantId}/subgraphs`, answers: notFound }),
  getAssistantSubgraph: ({ assistantId }) => ({ url: `/assistants/${assistantId}/subgraphs/child`, answers: notFound }),
  listAssistantVersions: ({ assistantId }) => ({
    url: `/assistants/${assistantId}/versions`,
    payload: {},
    answers: notFound,
  }),
  setAssistantVersion: ({ assistantId }) => ({
    url: `/assistants/${assistantId}/latest`,
    payload: { version: 1 },
    answers: notFound,
  }),
  createThread: ({ threadId }) => ({
    url: '/threads',
    payload: { thread_id: threadId, if_exists: 'do_nothing' },
    answers: own,
  }),
  searchThreads: ({ threadId }) => ({ url: '/threads/search', payload: { ids: [threadId] }, answers: own }),
  countThreads: () => ({ url: '/threads/count', payload: {}, answers: own }),
  pruneThreads: ({ threadId }) => ({ url: '/threads/prune', payload: { thread_ids: [threadId] }, answers: own }),
  getThread: ({ threadId }) => ({ url: `/threads/${threadId}`, answers: notFound }),
  updateThread: ({ threadId }) => ({ url: `/threads/${threadId}`, payload: { metadata: { a: 1 } }, answers: notFound }),
  deleteThread: ({ threadId }) => ({ url: `/threads/${threadId}`, answers: notFound }),
  copyThread: ({ threadId }) => ({ url: `/threads/${threadId}/copy`, answers: [409] }),
  getThreadState: ({ threadId }) => ({ url: `/threads/${threadId}/state`, answers: notFound }),
  getThreadStateAt: ({ threadId }) => ({ url: `/threads/${threadId}/state/1ef`, answers: notFound }),
  getThreadStateOf: ({ threadId }) => ({
    url: `/threads/${threadId}/state/checkpoint`,
    payload: { checkpoint: { thread_id: threadId, checkpoint_id: '1ef' } },
    answers: notFound,
  }),
  updateThreadState: ({ threadId }) => ({
    url: `/threads/${threadId}/state`,
    payload: { values: {} },
    answers: notFound,
  }),
  patchThreadState: ({ threadId }) => ({
    url: `/threads/${threadId}/state`,
    payload: { metadata: {} },
    answers: notFound,
  }),
  getThreadHistory: ({ threadId }) => ({ url: `/threads/${threadId}/history`, answers: notFound }),
  searchThreadHistory: ({ threadId }) => ({ url: `/threads/${threadId}/history`, payload: {}, answers: notFound }),
  createCron: ({ assistantId }) => ({
    url: '/runs/crons',
    payload: { assistant_id: assistantId, schedule: '0 0 1 1 *' },
    answers: notFound,
  }),
  createThreadCron: ({ threadId, assistantId }) => ({
    url: `/threads/${threadId}/runs/crons`,
    payload: { assistant_id: assistantId, schedule: '0 0 1 1 *' },
    answers: notFound,
  }),
  searchCrons: ({ threadId }) => ({ url: '/runs/crons/search', payload: { thread_id: threadId }, answers: own }),
  countCrons: ({ assistantId }) => ({ url: '/runs/crons/count', payload: { assistant_id: assistantId }, answers: own }),
  getCron: ({ cronId }) => ({ url: `/runs/crons/${cronId}`, answers: notFound }),
  updateCron: ({ cronId }) => ({ url: `/runs/crons/${cronId}`, payload: { enabled: false }, answers: notFound }),
  deleteCron: ({ cronId }) => ({ url: `/runs/crons/${cronId}`, answers: notFound }),
  streamThread: ({ threadId }) => ({ url: `/threads/${threadId}/stream`, answers: notFound }),
  createRun: ({ threadId }) => ({ url: `/threads/${threadId}/runs`, payload: echoPayload, answers: notFound }),
  streamRun: ({ threadId }) => ({ url: `/threads/${threadId}/runs/stream`, payload: echoPayload, answers: notFound }),
  waitForRun: ({ threadId }) => ({ url: `/threads/${threadId}/runs/wait`, payload: echoPayload, answers: notFound }),
  listRuns: ({ threadId }) => ({ url: `/threads/${threadId}/runs`, answers: notFound }),
  getAgentRun: ({ threadId, runId }) => ({ url: `/threads/${threadId}/runs/${runId}`, answers: notFound }),
  deleteAgentRun: ({ threadId, runId }) => ({ url: `/threads/${threadId}/runs/${runId}`, answers: notFound }),
  cancelAgentRun: ({ threadId, runId }) => ({ url: `/threads/${threadId}/runs/${runId}/cancel`, answers: notFound }),
  joinRun: ({ threadId, runId }) => ({ url: `/threads/${threadId}/runs/${runId}/join`, answers: notFound }),
  joinRunStream: ({ threadId, runId }) => ({ url: `/threads/${threadId}/runs/${runId}/stream`, answers: notFound }),
  createStatelessRun: (victim) => ({ url: '/runs', payload: run(victim), answers: notFound }),
  streamStatelessRun: (victim) => ({ url: '/runs/stream', payload: run(victim), answers: notFound }),
  waitForStatelessRun: (victim) => ({ url: '/runs/wait', payload: run(victim), answers: notFound }),
  joinStatelessRunStream: ({ runId }) => ({ url: `/runs/${runId}/stream`, answers: notFound }),
  createRunBatch: (victim) => ({ url: '/runs/batch', payload: [run(victim)], answers: notFound }),
  cancelAgentRuns: ({ threadId, runId }) => ({
    url: '/runs/cancel',
    payload: { thread_id: threadId, run_ids: [runId] },
    answers: [204, 404],
  }),
  // Tested in protocol.test.ts. Here the responses are 200 or do not end.
  postThreadCommand: ({ threadId }) => ({
    url: `/threads/${threadId}/commands`,
    payload: { id: 1, method: 'state.get' },
    answers: own,
  }),
  streamThreadEvents: ({ threadId }) => ({
    url: `/threads/${threadId}/stream/events`,
    payload: { channels: ['nonsense'] },
    answers: [422],
  }),
  openThreadSocket: ({ threadId }) => ({ url: `/threads/${threadId}/stream/events`, answers: [426] }),
  putStoreItem: () => ({ url: '/store/items', payload: { ...item, value: { stolen: true } }, answers: [204] }),
  getStoreItem: () => ({ url: '/store/items?namespace=animals&key=striped', answers: own }),
  deleteStoreItem: () => ({ url: '/store/items', payload: item, answers: [204] }),
  searchStoreItems: () => ({ url: '/store/items/search', payload: { namespace_prefix: [] }, answers: own }),
  listStoreNamespaces: () => ({ url: '/store/namespaces', payload: {}, answers: own }),
  // The request is rejected before its body is read, because `Accept` is missing; mcp.test.ts requests tools of others.
  postMcp: () => ({ url: '/mcp', payload: { jsonrpc: '2.0', id: 1, method: 'tools/list' }, answers: [406] }),
  deleteMcp: () => ({ url: '/mcp', answers: notFound }),
  postA2a: ({ assistantId, threadId, runId }) => ({
    url: `/a2a/${assistantId}`,
    payload: { jsonrpc: '2.0', id: 1, method: 'tasks/get', params: { id: runId, contextId: threadId } },
    answers: notFound,
  }),
  getAgentCard: ({ assistantId }) => ({
    url: `/.well-known/agent-card.json?assistant_id=${assistantId}`,
    answers: notFound,
  }),
};

let server: FastifyInstance;
let zebra: OrganizationUnderTest;
let stranger: OrganizationUnderTest;
let victims: Readonly<Record<'organisation' | 'deployment', Victim>>;
let powerless: Readonly<Record<'agents:read' | 'agents:run', string>>;
let readVictimState: () => Promise<unknown>;
let before: unknown;
/** Deletes rows that the stranger created under the same ids, so that the next attempt does not find them. */
let deleteStrangerRows: () => Promise<unknown>;
let close: () => Promise<void>;

beforeAll(async () => {
  const stores = await freshStores();
  const { database } = stores;
  zebra = await addOrganization(database, 'zebra');
  stranger = await addOrganization(database, 'stranger');
  const sibling = await addOrganizationDeployment(database, {
    organizationId: stranger.id,
    workspaceId: stranger.workspaceIds[0],
  });
  victims = { organisation: await addVictim(database, zebra.id), deployment: await addVictim(database, sibling) };
  readVictimState = () =>
    Promise.all(
      ['assistants', 'threads', 'runs', 'crons', 'store_items'].map((table) =>
        database.query(`SELECT * FROM agents.${table} WHERE deployment_id = ANY ($1) ORDER BY deployment_id`, [
          [zebra.id, sibling],
        ]),
      ),
    );
  before = await readVictimState();
  deleteStrangerRows = () =>
    Promise.all(
      ['threads', 'assistants'].map((table) =>
        database.execute(
          `DELETE FROM agents.${table} WHERE deployment_id = $1 AND NOT metadata @> '{"created_by": "system"}'`,
          [stranger.id],
        ),
      ),
    );
  await ensureSystemAssistants(database, stranger.id, [{ graphId: 'echo', name: 'echo', description: null }]);
  const keyOf = (permission: string) =>
    addKey({ database, organizationId: stranger.id, userId: stranger.userId, permissions: [permission] });
  powerless = { 'agents:read': await keyOf('agents:run'), 'agents:run': await keyOf('agents:read') };

  const errors = watchErrors(agentOperations);
  const config = { ...loadConfig(stores.environment).config, agentsAllowTruncate: true };
  const ends = new ShutdownSteps();
  ends.add('stores', () => stores.close());
  const { log } = await openEventLog({ config, logger: errors.logger, stores }, ends);
  const hub = await openStreamHub({ log, clickhouse: stores.clickhouse, deploymentId: stranger.id });
  ends.add('stream hub', () => hub.close());
  const authenticator = createAuthenticator({ database, logger: errors.logger });
  const graphs = { echo: { name: 'echo', description: null } };
  // No operation of the test needs a process that runs graph code.
  const agents: Omit<Agents, 'pool' | 'types' | 'publishState'> = {
    ...{ deploymentId: stranger.id, organizationId: stranger.id, workspaceId: stranger.workspaceIds[0] },
    ...{ config, database, hub, graphs, wake: () => undefined, recentAssistants: new RecentAssistants() },
    ...{ getNodes: () => undefined, threadTtl: undefined, libraryVersion: undefined },
    ...{ store: { refreshOnRead: true }, protocols: { mcp: true, a2a: true } },
    ...{ webhooks: buildWebhookRules({ allowPrivate: false }), copiesHeader: createHeaderRule() },
    acceptsFeedbackKeys: false,
    uis: { get: (ui) => Promise.reject(runlakeError('UI_NOT_FOUND', { ui })) },
  };
  const services = { authenticator, agents } as unknown as AgentServices;
  const form = buildAgentApi(config, stranger.workspaceIds[0]);
  server = await buildServer({ config, services, logger: errors.logger, operations: agentOperations, form });
  close = async () => {
    await server.close();
    await authenticator.close();
    await ends.run(errors.logger);
    errors.check();
  };
});
afterAll(() => close());

/** Adds rows of each kind to a deployment, all containing the word. */
async function addVictim(database: Database, deploymentId: string): Promise<Victim> {
  const metadata = { animal: 'okapi' };
  const zoo = [{ namespace: ['zoo'], key: 'animal', value: metadata }];
  await putItems(database, deploymentId, { refreshOnRead: true }, zoo);
  const assistant = await createAssistant(
    database,
    deploymentId,
    {
      graphId: 'echo',
      name: 'okapi',
      metadata,
      ifExists: 'raise',
    },
    { maxAssistants: 1_000 },
  );
  const thread = await createThread(database, deploymentId, {
    metadata: { ...metadata, graph_id: 'echo' },
    ifExists: 'raise',
  });
  const { run_id: runId } = await createRun(database, deploymentId, {
    assistant,
    threadId: thread.thread_id,
    ifNotExists: 'reject',
    kwargs: kwargs({ input: { animal: 'okapi' } }),
    metadata,
    multitaskStrategy: 'enqueue',
    afterSeconds: 0,
    temporary: false,
  });
  const cron = await createCron(
    database,
    deploymentId,
    {
      assistant_id: assistant.assistant_id,
      thread_id: thread.thread_id,
      schedule: '0 0 1 1 *',
      timezone: null,
      end_time: null,
      on_run_completed: null,
      enabled: true,
      payload: {},
      metadata,
      user_id: null,
    },
    { maxCrons: 1 },
  );
  const victim = { threadId: thread.thread_id, assistantId: assistant.assistant_id, runId, cronId: cron.cron_id };
  await database.execute(
    'INSERT INTO agents.store_items (deployment_id, namespace, key, value, searchable) VALUES ($1, $2, $3, $4, $5)',
    [deploymentId, item.namespace, item.key, metadata, metadata],
  );
  return victim;
}

const table = agentOperations
  .filter(({ access }) => !('public' in access))
  .map((operation) => [operation.operationId, operation] as const);

it('has an entry for exactly the operations that need a key', () => {
  expect(Object.keys(attempts).sort()).toEqual(table.map(([id]) => id).sort());
});

describe.each(table)('%s', (id, { method, access }) => {
  const ask = (key: string, headers: Record<string, string> = {}, victim = victims.organisation) => {
    const attempt = attempts[id];
    if (attempt === undefined) throw new Error(`no attempt at ${id}`);
    const { url, payload } = attempt(victim);
    return server.inject({ method, url, headers: { 'x-api-key': key, ...headers }, ...(payload && { payload }) });
  };

  it('requires a valid key with access to its workspace', async () => {
    expect((await ask('rlk_wrong')).statusCode).toBe(401);
    const second = stranger.workspaceIds[1];
    const refused = [
      await ask(zebra.adminKey),
      await ask(zebra.workspaceKeys[0]),
      await ask(zebra.workspaceKeys[1]),
      await ask(stranger.workspaceKeys[1]),
      await ask(stranger.workspaceKeys[1], { 'x-tenant-id': second }),
      await ask(stranger.adminKey, { 'x-tenant-id': second }),
    ];
    for (const answer of refused) {
      expect([answer.statusCode, answer.json().code]).toEqual([403, 'DEPLOYMENT_FORBIDDEN']);
    }
  });

  it('requires its permission', async () => {
    if (!('permission' in access)) return;
    const answer = await ask(powerless[access.permission as 'agents:read' | 'agents:run']);
    expect([answer.statusCode, answer.json().code]).toEqual([403, 'FORBIDDEN']);
  });

  it.each(['organisation', 'deployment'] as const)('neither returns nor changes data of another %s', async (kind) => {
    const { statusCode, body } = await ask(stranger.adminKey, {}, victims[kind]);
    expect(attempts[id]?.(victims[kind]).answers).toContain(statusCode);
    expect(body).not.toContain('okapi');
    expect(await readVictimState()).toEqual(before);
    await deleteStrangerRows();
  });
});
