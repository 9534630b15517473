import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import { text } from 'node:stream/consumers';
import { Client } from '@langchain/langgraph-sdk';
import { beforeAll, describe, expect, it } from 'vitest';
import { agentOperations } from '../../../api/agent-server/operations.ts';
import { forSuite } from '../../for-suite.ts';
import { startAgentServer } from './start-agent-server.ts';

/**
 * A project with custom authentication, through the stock client. Ada and Ben are its users; each has full access to
 * their own data. Everything of Ada contains the word `okapi`.
 */
const agentServer = forSuite(() => startAgentServer({ project: 'auth' }));
let ada: Client;
let ben: Client;
const server = () => agentServer;

const clientOf = (name: string) =>
  new Client({
    apiUrl: server().url,
    apiKey: null as never,
    defaultHeaders: { authorization: `Bearer secret-${name}` },
    callerOptions: { maxRetries: 0 },
  });

/** Sends a request as the user `name`, without a Runlake key. */
async function as(name: string, method: string, path: string, body?: unknown) {
  const response = await fetch(`${server().url}${path}`, {
    method,
    headers: {
      authorization: `Bearer secret-${name}`,
      accept: 'application/json, text/event-stream',
      ...(body !== undefined && { 'content-type': 'application/json' }),
    },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
  return { status: response.status, text: await response.text() };
}

beforeAll(async () => {
  ada = clientOf('ada');
  ben = clientOf('ben');
}, 120_000);

describe('authentication', () => {
  it.each([
    ['unknown', 401, 'no such token', 'Bearer nothing'],
    ['a status of the handler', 451, 'not for you', 'Bearer secret-banned'],
    ['a handler that throws', 401, 'The request is not authenticated.', 'Bearer secret-broken'],
  ])('rejects the request: %s', async (_name, status, detail, authorization) => {
    const response = await fetch(`${server().url}/threads`, { method: 'POST', headers: { authorization } });
    expect([response.status, await response.json()]).toMatchObject([status, { detail }]);
  });

  it('does not accept a Runlake key', async () => {
    expect((await server().ask('POST', '/threads/search', {})).status).toBe(401);
  });

  it('does not apply to public routes', async () => {
    const statuses = ['/ok', '/info', '/openapi.json', '/docs'].map(
      async (path) => (await fetch(server().url + path)).status,
    );
    expect(await Promise.all(statuses)).toEqual([200, 200, 200, 200]);
  });

  it('may use a query parameter of the project that no operation declares', async () => {
    const count = (session: string) =>
      fetch(`${server().url}/threads/count?session=${session}`, { method: 'POST', body: '{}' });
    expect((await count('nothing')).status).toBe(401);
    const counted = await count('secret-ada');
    expect([counted.status, counted.headers.get('x-ignored-fields')]).toEqual([200, null]);
  });

  it.each([
    '/threads/search',
    '//threads/search',
    '/threads//search',
    '/threads/search/',
    '/threads/s%65arch',
    '/threads/search#/threads/count',
    'http://localhost/threads/search',
  ])('calls the handler with the path of the operation: %s', async (path) => {
    const { hostname, port } = new URL(server().url);
    const headers = { authorization: 'Bearer secret-counter', 'content-type': 'application/json' };
    const sent = request({ hostname, port, path, method: 'POST', headers });
    sent.end('{}');
    const [response] = (await once(sent, 'response')) as [IncomingMessage];
    expect([response.statusCode, await text(response)]).toEqual([403, expect.stringContaining('only counts')]);
    expect((await as('counter', 'POST', '//threads/count', {})).status).toBe(200);
  });

  it('responds 503 if the handler takes longer than two seconds', async () => {
    expect((await as('slow', 'POST', '/threads/count', {})).status).toBe(503);
  });

  it('responds 503 if the process of the handler exits, and recovers with the next process', async () => {
    const count = async (name: string) => (await as(name, 'POST', '/threads/count', {})).status;
    expect(await count('dying')).toBe(503);
    await expect.poll(() => count('ada'), { timeout: 20_000 }).toBe(200);
  });

  it('sets the user of a graph run regardless of the request; the `user_id` is chosen by the client', async () => {
    const thread = await ada.threads.create();
    const config = { configurable: { langgraph_auth_user_id: 'ben', user_id: 'ben' } };
    const identity = { identity: 'ada', display_name: 'ADA', plan: 'free', permissions: ['is:ada'] };
    for (const id of [thread.thread_id, null]) {
      const { user } = (await ada.runs.wait(id as string, 'echo', { input: {}, config })) as { user: object };
      expect(user).toMatchObject({ user: identity, id: 'ada', user_id: 'ben', permissions: ['is:ada'] });
    }
  });
});

describe('handlers', () => {
  it('forbid, and an invalid result rejects the request', async () => {
    expect(await as('nobody', 'POST', '/threads', {})).toMatchObject({ status: 403 });
    expect(await as('confused', 'POST', '/threads', {})).toMatchObject({ status: 500 });
  });

  it('write their filter and their changes into the metadata of created resources', async () => {
    const thread = await ada.threads.create({ metadata: { a: 1, owner: 'ben' } });
    expect(thread.metadata).toEqual({ a: 1, owner: 'ada', by: 'threads:create' });
    const changed = await ada.threads.update(thread.thread_id, { metadata: { owner: 'ben', b: 2 } });
    expect(changed.metadata).toMatchObject({ owner: 'ada', b: 2 });
    const run = await ada.runs.create(thread.thread_id, 'echo', { input: {} });
    expect(run.metadata).toMatchObject({ by: 'threads:create_run' });
    const id = crypto.randomUUID();
    await ada.runs.wait(id, 'echo', { input: {}, ifNotExists: 'create' });
    expect((await ada.threads.get(id)).metadata).toMatchObject({ owner: 'ada', graph_id: 'echo' });
  });

  it('replace the namespace of an item', async () => {
    await ada.store.putItem(['notes'], 'k', { v: 1 });
    expect(await ada.store.getItem(['notes'], 'k')).toMatchObject({ namespace: ['ada', 'notes'], value: { v: 1 } });
    expect((await clientOf('root').store.getItem(['ada', 'notes'], 'k'))?.value).toEqual({ v: 1 });
  });

  it('allow the request by returning true', async () => {
    const thread = await ada.threads.create();
    expect((await clientOf('root').threads.get(thread.thread_id)).metadata?.owner).toBe('ada');
  });
});

interface Victim {
  readonly threadId: string;
  readonly assistantId: string;
  readonly runId: string;
  readonly cronId: string;
}

interface Attempt {
  readonly path: string;
  readonly body?: unknown;
  readonly status: number;
}

const at = (path: string, status: number, body?: unknown): Attempt => ({ path, status, body });
const echo = { assistant_id: 'echo', input: {} };
const schedule = '0 0 1 1 *';

/**
 * Ben's attempts, one for each operation that requires authentication. An operation without an entry fails the test.
 */
const attempts: Readonly<Record<string, (victim: Victim) => Attempt>> = {
  createAssistant: ({ assistantId: assistant_id }) =>
    at('/assistants', 409, { assistant_id, graph_id: 'echo', if_exists: 'do_nothing' }),
  searchAssistants: () => at('/assistants/search', 200, { metadata: { owner: 'ada' } }),
  countAssistants: () => at('/assistants/count', 200, {}),
  getAssistant: ({ assistantId }) => at(`/assistants/${assistantId}`, 404),
  updateAssistant: ({ assistantId }) => at(`/assistants/${assistantId}`, 404, { name: 'stolen' }),
  deleteAssistant: ({ assistantId }) => at(`/assistants/${assistantId}?delete_threads=true`, 404),
  getAssistantGraph: ({ assistantId }) => at(`/assistants/${assistantId}/graph`, 404),
  getAssistantSchemas: ({ assistantId }) => at(`/assistants/${assistantId}/schemas`, 404),
  getAssistantSubgraphs: ({ assistantId }) => at(`/assistants/${assistantId}/subgraphs`, 404),
  getAssistantSubgraph: ({ assistantId }) => at(`/assistants/${assistantId}/subgraphs/x`, 404),
  listAssistantVersions: ({ assistantId }) => at(`/assistants/${assistantId}/versions`, 404, {}),
  setAssistantVersion: ({ assistantId }) => at(`/assistants/${assistantId}/latest`, 404, { version: 1 }),
  createThread: ({ threadId: thread_id }) => at('/threads', 409, { thread_id, if_exists: 'do_nothing' }),
  searchThreads: ({ threadId }) => at('/threads/search', 200, { ids: [threadId] }),
  countThreads: () => at('/threads/count', 200, { metadata: { animal: 'okapi' } }),
  pruneThreads: ({ threadId }) => at('/threads/prune', 200, { thread_ids: [threadId] }),
  getThread: ({ threadId }) => at(`/threads/${threadId}`, 404),
  updateThread: ({ threadId }) => at(`/threads/${threadId}`, 404, { metadata: { owner: 'ben' } }),
  patchThreadState: ({ threadId }) => at(`/threads/${threadId}/state`, 404, { metadata: { owner: 'ben' } }),
  deleteThread: ({ threadId }) => at(`/threads/${threadId}`, 404),
  copyThread: ({ threadId }) => at(`/threads/${threadId}/copy`, 409),
  getThreadState: ({ threadId }) => at(`/threads/${threadId}/state`, 404),
  getThreadStateAt: ({ threadId }) => at(`/threads/${threadId}/state/1ef`, 404),
  getThreadStateOf: ({ threadId }) => at(`/threads/${threadId}/state/checkpoint`, 404, { checkpoint: {} }),
  updateThreadState: ({ threadId }) => at(`/threads/${threadId}/state`, 404, { values: { text: 'stolen' } }),
  getThreadHistory: ({ threadId }) => at(`/threads/${threadId}/history`, 404),
  searchThreadHistory: ({ threadId }) => at(`/threads/${threadId}/history`, 404, {}),
  streamThread: ({ threadId }) => at(`/threads/${threadId}/stream`, 404),
  createRun: ({ threadId }) => at(`/threads/${threadId}/runs`, 404, echo),
  streamRun: ({ threadId }) => at(`/threads/${threadId}/runs/stream`, 404, { ...echo, if_not_exists: 'create' }),
  waitForRun: ({ threadId }) => at(`/threads/${threadId}/runs/wait`, 404, { ...echo, multitask_strategy: 'rollback' }),
  listRuns: ({ threadId }) => at(`/threads/${threadId}/runs`, 404),
  getAgentRun: ({ threadId, runId }) => at(`/threads/${threadId}/runs/${runId}`, 404),
  deleteAgentRun: ({ threadId, runId }) => at(`/threads/${threadId}/runs/${runId}`, 404),
  cancelAgentRun: ({ threadId, runId }) => at(`/threads/${threadId}/runs/${runId}/cancel`, 404),
  cancelAgentRuns: () => at('/runs/cancel?action=rollback', 204, { status: 'all' }),
  joinRun: ({ threadId, runId }) => at(`/threads/${threadId}/runs/${runId}/join`, 404),
  joinRunStream: ({ threadId, runId }) => at(`/threads/${threadId}/runs/${runId}/stream`, 404),
  joinStatelessRunStream: ({ runId }) => at(`/runs/${runId}/stream?cancel_on_disconnect=true`, 404),
  createStatelessRun: ({ assistantId: assistant_id }) => at('/runs', 404, { assistant_id }),
  streamStatelessRun: ({ assistantId: assistant_id }) => at('/runs/stream', 404, { assistant_id }),
  waitForStatelessRun: ({ assistantId: assistant_id }) => at('/runs/wait', 404, { assistant_id }),
  createRunBatch: ({ assistantId: assistant_id }) => at('/runs/batch', 404, [{ assistant_id }]),
  createCron: ({ assistantId: assistant_id }) => at('/runs/crons', 404, { assistant_id, schedule }),
  createThreadCron: ({ threadId }) => at(`/threads/${threadId}/runs/crons`, 404, { assistant_id: 'echo', schedule }),
  searchCrons: ({ threadId }) => at('/runs/crons/search', 200, { thread_id: threadId }),
  countCrons: ({ threadId }) => at('/runs/crons/count', 200, { thread_id: threadId }),
  getCron: ({ cronId }) => at(`/runs/crons/${cronId}`, 404),
  updateCron: ({ cronId }) => at(`/runs/crons/${cronId}`, 404, { enabled: false }),
  deleteCron: ({ cronId }) => at(`/runs/crons/${cronId}`, 404),
  putStoreItem: () => at('/store/items', 204, { namespace: ['secrets'], key: 'k', value: { by: 'ben' } }),
  getStoreItem: () => at('/store/items?namespace=secrets&key=okey', 200),
  deleteStoreItem: () => at('/store/items', 204, { namespace: ['secrets'], key: 'okey' }),
  searchStoreItems: () => at('/store/items/search', 200, {}),
  postThreadCommand: ({ threadId }) =>
    at(`/threads/${threadId}/commands`, 404, {
      id: 1,
      method: 'run.start',
      params: { assistant_id: 'echo', input: {} },
    }),
  streamThreadEvents: ({ threadId }) => at(`/threads/${threadId}/stream/events`, 404, { channels: ['values'] }),
  // The request has no upgrade. custom-auth-protocols.test.ts tests commands on a socket, tools and tasks.
  openThreadSocket: ({ threadId }) => at(`/threads/${threadId}/stream/events`, 426),
  postMcp: () => at('/mcp', 200, { jsonrpc: '2.0', id: 1, method: 'tools/list' }),
  deleteMcp: () => at('/mcp', 404),
  postA2a: ({ threadId: contextId, runId: id }) =>
    at('/a2a/echo', 200, { jsonrpc: '2.0', id: 1, method: 'tasks/get', params: { id, contextId } }),
  getAgentCard: ({ assistantId }) => at(`/.well-known/agent-card.json?assistant_id=${assistantId}`, 404),
  listStoreNamespaces: () => at('/store/namespaces', 200, { prefix: ['*'] }),
};

/** Operations that users cannot call: an operator setting enables them. */
const operatorOperations = new Set(['truncate']);
const closed = agentOperations.filter(
  ({ access, operationId }) => !('public' in access) && !operatorOperations.has(operationId),
);

it('gives the copy of a shared thread to the user who made it', async () => {
  const { thread_id: sharedId } = await ada.threads.create({ metadata: { shared: true } });
  const copy = await clientOf('reader').threads.copy(sharedId);
  expect(copy.metadata).toMatchObject({ owner: 'reader', by: 'threads:create', shared: true });
  expect(await ada.threads.search({ ids: [copy.thread_id] })).toEqual([]);
});

describe('a filter of a store handler', () => {
  /** The `store` handler restricts these users to items whose `owner`, or whose namespace, is their name. */
  const [one, two] = ['valued_one', 'valued_two'] as const;
  const put = (name: string, key: string, owner: string) =>
    as(name, 'PUT', '/store/items', { namespace: ['shared'], key, value: { owner } });

  it('is compared with the value of an item', async () => {
    expect((await put(one, 'a', one)).status).toBe(204);
    expect((await put(one, 'b', two)).status).toBe(403);
    expect((await put(two, 'a', two)).status).toBe(404);
    expect((await put(two, 'c', two)).status).toBe(204);
    const read = (name: string, key: string) => as(name, 'GET', `/store/items?namespace=shared&key=${key}`);
    expect(JSON.parse((await read(one, 'a')).text)).toMatchObject({ value: { owner: one } });
    expect((await read(two, 'a')).status).toBe(404);
    expect(await read(two, 'none')).toEqual({ status: 200, text: 'null' });
    const search = async (name: string) => (await clientOf(name).store.searchItems(['shared'])).items;
    expect(await search(one)).toMatchObject([{ key: 'a' }]);
    expect(await search(two)).toMatchObject([{ key: 'c' }]);
    const drop = async (name: string, key: string) =>
      (await as(name, 'DELETE', '/store/items', { namespace: ['shared'], key })).status;
    expect([await drop(two, 'a'), await drop(one, 'c'), await drop(one, 'none')]).toEqual([404, 404, 403]);
    expect([await drop(one, 'a'), await search(one), await search(two)]).toMatchObject([204, [], [{ key: 'c' }]]);
  });

  it('is compared with the namespace and the key', async () => {
    const name = 'spaced_one';
    const itemKey = (namespace: readonly string[]) => ({ namespace, key: 'k' });
    const at = (namespace: readonly string[]) => ({ ...itemKey(namespace), value: { v: 1 } });
    expect((await as(name, 'PUT', '/store/items', at(['of', name]))).status).toBe(204);
    expect((await as('root', 'PUT', '/store/items', at(['of', 'others']))).status).toBe(204);
    expect((await as(name, 'PUT', '/store/items', at(['of', 'others']))).status).toBe(404);
    expect((await as(name, 'PUT', '/store/items', { ...at(['of', name]), key: 'other' })).status).toBe(403);
    expect((await clientOf(name).store.searchItems(['of'])).items).toMatchObject([itemKey(['of', name])]);
    const { namespaces } = await clientOf(name).store.listNamespaces({ prefix: ['of'] });
    expect(namespaces).toEqual([['of', name]]);
    expect((await as(name, 'DELETE', '/store/items', itemKey(['of', 'others']))).status).toBe(404);
    expect((await as(name, 'DELETE', '/store/items', itemKey(['of', name]))).status).toBe(204);
  });

  it('rejects the request if it is invalid', async () => {
    expect((await put('confused_store', 'a', 'x')).status).toBe(500);
  });
});

describe('a batch of runs', () => {
  const readRuns = (assistantId: string) =>
    server().database.query<{ metadata: object }>(
      'SELECT metadata FROM agents.runs WHERE assistant_id = $1 ORDER BY queue_position',
      [assistantId],
    );

  it('is authorised run by run, before the first run is created', async () => {
    const { assistant_id } = await ada.assistants.create({ graphId: 'echo' });
    const foreign = await ben.assistants.create({ graphId: 'echo' });
    const batch = (ids: readonly string[]) =>
      as(
        'ada',
        'POST',
        '/runs/batch',
        ids.map((id, number) => ({ assistant_id: id, input: {}, afterSeconds: 3_000, metadata: { number } })),
      );
    expect(await batch([assistant_id, foreign.assistant_id])).toMatchObject({ status: 404 });
    expect(await readRuns(assistant_id)).toEqual([]);
    expect(await batch([assistant_id, assistant_id])).toMatchObject({ status: 200 });
    const by = 'threads:create_run';
    expect((await readRuns(assistant_id)).map(({ metadata }) => metadata)).toMatchObject([
      { number: 0, by },
      { number: 1, by },
    ]);
  });

  it('is refused if the answer would be too large', async () => {
    const configurable = { large: 'x'.repeat(1024 * 1024) };
    const { assistant_id } = await ada.assistants.create({ graphId: 'echo', config: { configurable } });
    const batch = Array.from({ length: 100 }, () => ({ assistant_id, input: {} }));
    const { status, text } = await as('ada', 'POST', '/runs/batch', batch);
    expect([status, JSON.parse(text)]).toMatchObject([422, { code: 'ANSWER_TOO_LARGE' }]);
    expect(await readRuns(assistant_id)).toEqual([]);
  });
});

describe('resources of another user', () => {
  let victim: Victim;
  const metadata = { animal: 'okapi' };

  beforeAll(async () => {
    const { assistant_id } = await ada.assistants.create({ graphId: 'echo', metadata, name: 'okapi' });
    const { thread_id } = await ada.threads.create({ metadata });
    await ada.runs.wait(thread_id, assistant_id, { input: { text: 'okapi' } });
    // A pending run, for the cancel attempts.
    const run = await ada.runs.create(thread_id, assistant_id, { input: {}, metadata, afterSeconds: 3_000 });
    const cron = await ada.crons.createForThread(thread_id, assistant_id, { schedule, metadata, input: {} });
    await ada.store.putItem(['secrets'], 'okey', { animal: 'okapi' });
    const { cron_id } = cron as unknown as { cron_id: string };
    victim = { threadId: thread_id, assistantId: assistant_id, runId: run.run_id, cronId: cron_id };
  }, 30_000);

  const readVictim = async () => {
    const { threadId, assistantId, runId, cronId } = victim;
    const paths = [
      `/threads/${threadId}`,
      `/threads/${threadId}/state`,
      `/threads/${threadId}/runs/${runId}`,
      `/assistants/${assistantId}`,
      `/runs/crons/${cronId}`,
      '/store/items?namespace=secrets&key=okey',
    ];
    return Promise.all(paths.map(async (path) => (await as('ada', 'GET', path)).text));
  };

  it('lists every operation', () => {
    expect(closed.map(({ operationId }) => operationId).filter((id) => !(id in attempts))).toEqual([]);
  });

  it.each(closed.filter(({ operationId }) => operationId in attempts).map((one) => [one.operationId, one] as const))(
    '%s',
    async (id, { method }) => {
      const before = await readVictim();
      for (const text of before) expect(text).toContain('okapi');
      const { path, body, status } = attempts[id]!(victim);
      const answer = await as('ben', method, path, body);
      expect(answer).toMatchObject({ status });
      expect(answer.text).not.toContain('okapi');
      expect(await readVictim()).toEqual(before);
    },
  );

  it('are found only by their owner', async () => {
    for (const [client, found] of [
      [ada, 1],
      [ben, 0],
    ] as const) {
      expect(await client.threads.search({ metadata })).toHaveLength(found);
      expect(await client.assistants.search({ metadata })).toHaveLength(found);
      expect(await client.crons.search({ threadId: victim.threadId })).toHaveLength(found);
      expect((await client.store.searchItems(['secrets'])).items.filter(({ key }) => key === 'okey')).toHaveLength(
        found,
      );
    }
  });

  it('include stateless runs, which only their owner can follow', async () => {
    const run = (await ada.runs.create(null, 'echo', { input: {}, afterSeconds: 3_000 })) as {
      run_id: string;
      thread_id: string;
    };
    expect((await as('ben', 'GET', `/threads/${run.thread_id}/runs/${run.run_id}`)).status).toBe(404);
    expect((await as('ada', 'GET', `/threads/${run.thread_id}/runs/${run.run_id}`)).status).toBe(200);
  });
});
