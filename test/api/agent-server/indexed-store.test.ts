import { expect, it } from 'vitest';
import { buildGraphEnvironment } from '../../../infra/config/graph-environment.ts';
import { readGraphsFile } from '../../../pipelines/agents/graphs/graphs-file.ts';
import { openWorkerPool } from '../../../pipelines/agents/workers/front/worker-pool.ts';
import { projectFile } from '../../agents/pool-under-test.ts';
import { forSuite } from '../../for-suite.ts';
import { logger } from '../../silent-logger.ts';
import { startAgentServer } from './start-agent-server.ts';

const agents = forSuite(() => startAgentServer({ project: 'store' }));

const findItems = async (graph: string, input: Record<string, unknown>) =>
  ((await agents.client.runs.wait(null, graph, { input })) as { found: { key: string; ranked: boolean }[] }).found;

it('clients and other runs find by similarity what a graph writes to its store, and vice versa', async () => {
  const { store } = agents.client;
  await findItems('notes', { write: { lunch: 'Ann likes soup', sky: 'take an umbrella' } });
  await store.putItem(['notes'], 'trip', { text: 'from the station at nine' });
  await store.putItem(['notes'], 'unseen', { text: 'travel' }, { index: false });
  expect((await findItems('notes', { query: 'weather' }))[0]).toEqual({
    key: 'sky',
    text: 'take an umbrella',
    ranked: true,
  });
  expect((await findItems('notes', { query: 'travel' })).map(({ key, ranked }) => ranked && key)).toEqual([
    'trip',
    expect.anything(),
    expect.anything(),
    false,
  ]);
  const { items } = await store.searchItems(['notes'], { query: 'hungry', limit: 1 });
  expect(items).toMatchObject([{ key: 'lunch', value: { text: 'Ann likes soup' } }]);
  expect(items[0]!.score).toBeGreaterThan(0.9);
});

it('graphs and clients use the TTLs of langgraph.json', async () => {
  await findItems('notes', { write: { a: 'a' } });
  await agents.client.store.putItem(['notes'], 'b', { text: 'b' });
  await agents.client.store.putItem(['notes'], 'c', { text: 'c' }, { ttl: 5 });
  const rows = await agents.database.query(
    `SELECT key, ttl_minutes FROM agents.store_items WHERE deployment_id = $1 AND key IN ('a', 'b', 'c') ORDER BY key`,
    [agents.owner.id],
  );
  expect(rows).toEqual([
    { key: 'a', ttl_minutes: 60 },
    { key: 'b', ttl_minutes: 60 },
    { key: 'c', ttl_minutes: 5 },
  ]);
});

it('a graph with its own store keeps it', async () => {
  expect(await findItems('own', { write: { inside: 'x' } })).toEqual([{ key: 'inside', text: 'x', ranked: false }]);
  expect(await agents.client.store.getItem(['notes'], 'inside')).toBeNull();
});

it('reports a failing embedder to graphs and clients', async () => {
  const answer = await agents.ask('POST', '/store/items/search', { query: 'fail' });
  expect([answer.status, await answer.text()]).toEqual([500, expect.stringContaining('fails on purpose')]);
  const thread = await agents.client.threads.create();
  await agents.client.runs
    .wait(thread.thread_id, 'notes', { input: { write: { x: 'fail' } }, raiseError: false })
    .catch(() => undefined);
  expect(await agents.client.threads.get(thread.thread_id)).toMatchObject({ status: 'error' });
});

it.each([
  ['./embed.js:none', /embed\.js has no export 'none'/],
  ['nobody:model', /neither a path nor one of/],
])('startup fails if the embedder is %s', async (embed, reason) => {
  const file = await readGraphsFile(projectFile('store'));
  const opening = openWorkerPool({
    file: { ...file, store: { index: { embed, dims: 3 } } },
    workers: 1,
    runsPerWorker: 1,
    environment: buildGraphEnvironment(),
    maxEventBytes: 1024,
    maxBufferedBytes: 1024 * 1024,
    heartbeatTimeoutMs: 10_000,
    logger,
  });
  await expect(opening).rejects.toMatchObject({
    code: 'STORE_EMBEDDER_UNUSABLE',
    message: expect.stringMatching(reason),
  });
});
