import { expect, it } from 'vitest';
import { forSuite } from '../../for-suite.ts';
import { startAgentServer } from './start-agent-server.ts';

const agents = forSuite(() => startAgentServer());

it('stores items for the stock client and finds them', async () => {
  const { store } = agents.client;
  await store.putItem(['users', 'ann'], 'likes', { food: 'soup', n: 3 });
  await store.putItem(['users', 'ann', 'old'], 'likes', { food: 'cake' }, { ttl: 5, index: false });
  await store.putItem(['users', 'bob'], 'likes', { food: 'soup', n: 9 });
  expect(await store.getItem(['users', 'ann'], 'likes')).toMatchObject({
    namespace: ['users', 'ann'],
    key: 'likes',
    value: { food: 'soup', n: 3 },
    createdAt: expect.any(String),
  });
  expect(await store.getItem(['users', 'ann'], 'gone')).toBeNull();
  const { items } = await store.searchItems(['users'], { filter: { food: 'soup', n: { $gt: 3 } } });
  expect(items.map(({ namespace }) => namespace)).toEqual([['users', 'bob']]);
  expect((await store.searchItems(['users'], { limit: 2, offset: 1 })).items).toHaveLength(2);
  expect(await store.listNamespaces({ prefix: ['users'], maxDepth: 2 })).toEqual({
    namespaces: [
      ['users', 'ann'],
      ['users', 'bob'],
    ],
  });
  await store.deleteItem(['users', 'ann'], 'likes');
  expect(await store.getItem(['users', 'ann'], 'likes')).toBeNull();
  expect(await store.getItem(['users', 'ann', 'old'], 'likes', { refreshTtl: false })).toMatchObject({
    value: { food: 'cake' },
  });
});

it('responds to requests of clients without an SDK', async () => {
  const put = await agents.ask('PUT', '/store/items', { namespace: ['x', 'y'], key: 'k', value: { a: 1 } });
  expect([put.status, await put.text()]).toEqual([204, '']);
  for (const path of ['/store/items?namespace=x.y&key=k', '/store/items?namespace=x&namespace=y&key=k']) {
    const got = await agents.ask('GET', path);
    expect([got.status, await got.json()]).toMatchObject([200, { namespace: ['x', 'y'], key: 'k', value: { a: 1 } }]);
  }
  const missing = await agents.ask('GET', '/store/items?namespace=x.y&key=other');
  expect([missing.status, await missing.text()]).toEqual([200, 'null']);
  expect((await agents.ask('DELETE', '/store/items', { namespace: ['x', 'y'], key: 'k' })).status).toBe(204);
});

it.each<[string, string, object]>([
  ['PUT', '/store/items', { namespace: ['a.b'], key: 'k', value: {} }],
  ['PUT', '/store/items', { namespace: [''], key: 'k', value: {} }],
  ['PUT', '/store/items', { namespace: [], key: 'k', value: {} }],
  ['PUT', '/store/items', { namespace: ['langgraph'], key: 'k', value: {} }],
  ['PUT', '/store/items', { namespace: ['a'], key: 'k', value: [1] }],
  ['PUT', '/store/items', { namespace: ['a'], key: 'k' }],
  ['PUT', '/store/items', { namespace: ['a'], key: 'k', value: {}, ttl: 0 }],
  ['PUT', '/store/items', { namespace: ['a'], key: 'k', value: {}, index: ['text'] }],
  ['PUT', '/store/items', { namespace: ['a\u0000'], key: 'k', value: {} }],
  ['POST', '/store/items/search', { filter: { a: { $regex: 'b' } } }],
  ['POST', '/store/items/search', { filter: Object.fromEntries(Array.from({ length: 101 }, (_, n) => [`f${n}`, n])) }],
  ['POST', '/store/items/search', { query: 'no index' }],
  ['POST', '/store/items/search', { limit: 0 }],
  ['POST', '/store/namespaces', { max_depth: 0 }],
])('%s %s %j responds 422', async (method, path, body) => {
  const answer = await agents.ask(method, path, body);
  expect([answer.status, await answer.json()]).toMatchObject([422, { detail: expect.anything() }]);
});
