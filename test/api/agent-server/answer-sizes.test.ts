import { randomUUID } from 'node:crypto';
import { Client as McpClient } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { expect, it } from 'vitest';
import { getBodyBudget } from '../../../pipelines/ingest/body/body-budget.ts';
import { createProxyTo, forSuite } from '../../for-suite.ts';
import { startAgentServer } from './start-agent-server.ts';

/**
 * Lists whose rows contain client data. Two of the large rows exceed the response limit together: a list with both is
 * rejected; a list with one of them, or without the large fields, is returned.
 */

const limitBytes = 256 * 1024;
const large = 'x'.repeat(160 * 1024);

const server = forSuite(() => startAgentServer({ config: { maxPageBytes: limitBytes } }));
const client = createProxyTo(() => server.client);

const refused = { status: 422, message: expect.stringContaining('ANSWER_TOO_LARGE') };
const runTwice = <Made>(make: () => Promise<Made>) => Promise.all([make(), make()]);
const input = { messages: [{ role: 'user', content: large }] };

it('limits lists of runs', async () => {
  const { thread_id: threadId } = await client.threads.create();
  const options = { input, afterSeconds: 3_600 };
  const [{ run_id: first }] = await runTwice(() => client.runs.create(threadId, 'echo', options));
  await expect(client.runs.list(threadId)).rejects.toMatchObject(refused);
  expect(await client.runs.list(threadId, { limit: 1 })).toMatchObject([{ kwargs: { input } }]);
  const ids = await client.runs.list(threadId, { select: ['run_id', 'status'] });
  expect(ids).toHaveLength(2);
  expect(ids).toContainEqual({ run_id: first, status: 'pending' });
  const named = await server.ask('GET', `/threads/${threadId}/runs?limit=1&select=langsmith_session_name`);
  expect(await named.json()).toEqual([{ langsmith_session_name: 'echo' }]);
});

it('limits lists of many large runs', async () => {
  const { thread_id: threadId } = await client.threads.create();
  await server.database.execute(
    `INSERT INTO agents.runs (deployment_id, thread_id, run_id, assistant_id, graph_id, status, kwargs)
     SELECT $1, $2, gen_random_uuid(), gen_random_uuid(), 'echo', 'success', kwargs
     FROM (SELECT json_build_object('input', repeat('x', 2000000)) AS kwargs) large, generate_series(1, 40)`,
    [server.owner.id, threadId],
  );
  const query = { limit: 1_000 };
  await expect(client.runs.list(threadId, query)).rejects.toMatchObject(refused);
  expect(await client.runs.list(threadId, { ...query, select: ['status'] })).toHaveLength(40);
});

it('limits lists of threads', async () => {
  const metadata = { group: randomUUID() };
  const [{ thread_id: first }] = await runTwice(async () => {
    const thread = await client.threads.create({ metadata });
    await client.runs.wait(thread.thread_id, 'echo', { input });
    return thread;
  });
  await expect(client.threads.search({ metadata })).rejects.toMatchObject(refused);
  expect(await client.threads.search({ metadata, limit: 1 })).toMatchObject([{ values: { messages: [{}, {}] } }]);
  expect(await client.threads.search({ metadata, select: ['thread_id'] })).toContainEqual({ thread_id: first });
  const extract = { graph: 'metadata.graph_id' };
  expect(await client.threads.search({ metadata, select: ['status'], extract })).toEqual([
    { status: 'idle', extracted: { graph: 'echo' } },
    { status: 'idle', extracted: { graph: 'echo' } },
  ]);
  await expect(client.threads.getHistory(first)).rejects.toMatchObject(refused);
  expect(await client.threads.getHistory(first, { limit: 1 })).toHaveLength(1);
  const states = await server.ask('POST', `/threads/${first}/history`, { select: ['next'] });
  expect(await states.json()).toEqual([{ next: [] }, { next: ['reply'] }, { next: ['__start__'] }]);
});

it('limits lists of assistants, their versions, and tools', async () => {
  const metadata = { group: randomUUID() };
  const config = { configurable: { large } };
  const make = () => client.assistants.create({ graphId: 'echo', metadata, config });
  const [{ assistant_id: id }] = await runTwice(make);
  await expect(client.assistants.search({ metadata })).rejects.toMatchObject(refused);
  expect(await client.assistants.search({ metadata, limit: 1 })).toMatchObject([{ config }]);
  expect(await client.assistants.search({ metadata, select: ['name'] })).toHaveLength(2);
  await client.assistants.update(id, { graphId: 'echo', metadata });
  await expect(client.assistants.getVersions(id)).rejects.toMatchObject(refused);
  expect(await client.assistants.getVersions(id, { limit: 1 })).toMatchObject([{ version: 2 }]);

  const mcp = new McpClient({ name: 'test', version: '1' });
  const headers = { 'x-api-key': server.owner.adminKey };
  await mcp.connect(new StreamableHTTPClientTransport(new URL(`${server.url}/mcp`), { requestInit: { headers } }));
  await expect(mcp.listTools()).rejects.toThrow(`larger than ${limitBytes} bytes`);
  await mcp.close();
  // Each run of a batch contains the configuration.
  const batch = [1, 2].map(() => ({ assistant_id: id, input: {}, metadata }));
  const answer = await server.ask('POST', '/runs/batch', batch);
  expect([answer.status, await answer.json()]).toMatchObject([422, { code: 'ANSWER_TOO_LARGE' }]);
  const made = await server.database.query('SELECT FROM agents.runs WHERE assistant_id = $1', [id]);
  expect(made).toEqual([]);
  expect((await server.ask('POST', '/runs/batch', batch.slice(1))).status).toBe(200);
  await client.assistants.delete(id);
});

it('limits lists of crons', async () => {
  const metadata = { group: randomUUID() };
  await runTwice(() => client.crons.create('echo', { schedule: '0 0 1 1 *', input, metadata }));
  const search = (query: object) => server.ask('POST', '/runs/crons/search', { metadata, ...query });
  const all = await search({});
  expect([all.status, await all.json()]).toMatchObject([422, { code: 'ANSWER_TOO_LARGE' }]);
  expect(await (await search({ limit: 1 })).json()).toMatchObject([{ payload: { input } }]);
  expect(await (await search({ select: ['schedule'] })).json()).toEqual([
    { schedule: '0 0 1 1 *' },
    { schedule: '0 0 1 1 *' },
  ]);
});

it('counts a large item and a large thread against the memory for request bodies', async () => {
  const namespace = [randomUUID()];
  const value = { large: large.repeat(10) };
  await client.store.putItem(namespace, 'a', value, { ttl: 60 });
  await client.store.putItem(namespace, 'b', { small: true });
  const { thread_id: threadId } = await client.threads.create();
  await server.database.execute('UPDATE agents.threads SET values = $2 WHERE thread_id = $1', [threadId, value]);
  const read = async () => [
    await server.ask('GET', `/store/items?namespace=${namespace[0]}&key=a`),
    await server.ask('GET', `/threads/${threadId}`),
    await server.ask('GET', `/store/items?namespace=${namespace[0]}&key=b`),
  ];
  const { config } = server.services.agents;
  const share = getBodyBudget(config).open(server.owner.id, () => undefined);
  try {
    share.take(config.maxCollectingBytes - 1_000_000);
    expect((await read()).map(({ status }) => status)).toEqual([503, 503, 200]);
  } finally {
    share.close();
  }
  const [item, thread, small] = await Promise.all((await read()).map((answer) => answer.json()));
  expect([item, thread, small]).toMatchObject([{ value }, { values: value }, { value: { small: true } }]);
});

it('limits lists of items; a rejected response does not refresh their TTL', async () => {
  const namespace = [randomUUID()];
  for (const key of ['a', 'b']) await client.store.putItem(namespace, key, { large }, { ttl: 60 });
  const readExpiries = () =>
    server.database.query('SELECT expires_at FROM agents.store_items WHERE namespace = $1 ORDER BY key', [namespace]);
  const before = await readExpiries();
  await expect(client.store.searchItems(namespace)).rejects.toMatchObject(refused);
  expect(await readExpiries()).toEqual(before);
  const { items } = await client.store.searchItems(namespace, { limit: 1 });
  expect(items).toMatchObject([{ key: 'b', value: { large } }]);
  expect(await readExpiries()).toEqual([before[0], expect.not.objectContaining(before[1] as object)]);
});
