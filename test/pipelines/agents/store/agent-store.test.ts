import { randomBytes } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeAll, describe, expect, test, vi } from 'vitest';
import { AgentStore, loadEmbedder } from '../../../../pipelines/agents/store/agent-store.ts';
import { getItems } from '../../../../pipelines/agents/store/read-items.ts';
import type { Embedder, StoreConfig } from '../../../../pipelines/agents/store/store-item.ts';
import { deleteExpiredItems, putItems } from '../../../../pipelines/agents/store/write-items.ts';
import { addDeployment } from '../../../agents/add-deployment.ts';
import { folderForTest } from '../../../folders.ts';
import { forSuite } from '../../../for-suite.ts';
import { openThreads } from '../checkpoints/threads.ts';

const threads = forSuite(() => openThreads());

const plain: StoreConfig = { refreshOnRead: true };
const newDeployment = () => addDeployment(threads.database);
const open = async (config = plain) => new AgentStore(threads.pool, await newDeployment(), config);
const keysOf = (items: readonly { key: string }[]) => items.map(({ key }) => key).sort();

test('puts, reads, overwrites and deletes an item with any JSON value', async () => {
  const store = await open();
  const value = { text: 'nul \u0000 and ünïcode 😀', list: [1, { deep: null }], half: '\ud800', big: 1e300 };
  await store.put(['users', 'a_%:b'], 'k', value);
  const first = await store.get(['users', 'a_%:b'], 'k');
  expect(first).toEqual({
    namespace: ['users', 'a_%:b'],
    key: 'k',
    value,
    createdAt: expect.any(Date),
    updatedAt: expect.any(Date),
  });
  await store.put(['users', 'a_%:b'], 'k', { other: 1 });
  const second = await store.get(['users', 'a_%:b'], 'k');
  expect(second).toMatchObject({ value: { other: 1 }, createdAt: first!.createdAt });
  expect(second!.updatedAt.getTime()).toBeGreaterThanOrEqual(first!.updatedAt.getTime());
  expect(await store.get(['users', 'a_%', 'b'], 'k')).toBeNull();
  expect(await store.search(['users'], { filter: { other: 1 } })).toHaveLength(1);
  await store.delete(['users', 'a_%:b'], 'k');
  expect(await store.get(['users', 'a_%:b'], 'k')).toBeNull();
});

test('matches prefixes by label, not by text', async () => {
  const store = await open();
  const all = [
    ['users', '1'],
    ['users', '10'],
    ['users', '1', 'deep'],
    ['users'],
    ['users2'],
    ['a:b'],
    ['a', 'b'],
    ['users', '\u{10ffff}'],
  ];
  for (const namespace of all) await store.put(namespace, namespace.join('/'), {});
  const under = async (...prefix: string[]) => keysOf(await store.search(prefix, { limit: 100 }));
  expect(await under('users', '1')).toEqual(['users/1', 'users/1/deep']);
  expect(await under('users')).toEqual(['users', 'users/1', 'users/1/deep', 'users/10', 'users/\u{10ffff}']);
  expect(await under('a')).toEqual(['a/b']);
  expect(await under()).toHaveLength(all.length);
  expect(await store.search([], { limit: 3, offset: 6 })).toHaveLength(2);

  const list = (options: object) => store.listNamespaces(options);
  expect(await list({ prefix: ['users'] })).toEqual([
    ['users'],
    ['users', '1'],
    ['users', '1', 'deep'],
    ['users', '10'],
    ['users', '\u{10ffff}'],
  ]);
  expect(await list({ prefix: ['users'], maxDepth: 2, limit: 2, offset: 1 })).toEqual([
    ['users', '1'],
    ['users', '10'],
  ]);
  expect(await list({ suffix: ['b'] })).toEqual([['a', 'b']]);
  expect(await list({ prefix: ['*', '1'], suffix: ['deep'] })).toEqual([['users', '1', 'deep']]);
  expect(await list({ prefix: ['users', '*', 'deep'] })).toEqual([['users', '1', 'deep']]);
  expect(await list({ maxDepth: 1 })).toEqual([['a'], ['a:b'], ['users'], ['users2']]);
});

describe('filters', () => {
  const store = forSuite(() => open());
  beforeAll(async () => {
    await store.put(['f'], 'one', { n: 1, s: 'apple', list: [1, 2], nested: { a: 1 } });
    await store.put(['f'], 'two', { n: 2.5, s: 'pear', nested: { a: 1, b: 2 } });
    await store.put(['f'], 'ten', { n: 10, s: 'zebra', empty: null });
    await store.put(['f'], 'text', { n: '2' });
  });
  test.each<[object, string[]]>([
    [{ n: 1 }, ['one']],
    [{ n: 1.0, s: 'apple' }, ['one']],
    [{ n: '2' }, ['text']],
    [{ nested: { a: 1 } }, ['one']],
    [{ list: [1, 2] }, ['one']],
    [{ empty: null }, ['ten']],
    [{ n: { $eq: 10 } }, ['ten']],
    [{ n: { $ne: 1 } }, ['ten', 'text', 'two']],
    [{ n: { $gt: 1 } }, ['ten', 'two']],
    [{ n: { $gte: 1, $lt: 10 } }, ['one', 'two']],
    [{ n: { $lte: 2.5 } }, ['one', 'two']],
    [{ s: { $gt: 'b' } }, ['ten', 'two']],
    [{ missing: { $ne: 1 } }, ['one', 'ten', 'text', 'two']],
    [{ n: { $in: [1, 10, 'x'] } }, ['one', 'ten']],
    [{ nested: { $in: [{ a: 1 }] } }, ['one']],
    [{ n: { $nin: [1, 10] } }, ['text', 'two']],
    [{ missing: { $in: [1, null] } }, []],
    [{ missing: { $nin: [1] } }, ['one', 'ten', 'text', 'two']],
    [{ n: { $in: 1 } }, []],
    [{ "n' OR true --": 1 }, []],
  ])('match %j', async (filter, keys) => {
    expect(keysOf(await store.search(['f'], { filter }))).toEqual(keys);
  });
  test.each<object>([{ $regex: '.' }, { $eq: 1, constructor: 1 }, { $eq: 1, toString: 1 }])(
    'refuse an unknown operator: %j',
    async (n) => {
      await expect(store.search(['f'], { filter: { n } as never })).rejects.toMatchObject({
        code: 'STORE_FILTER_INVALID',
      });
    },
  );
});

test('refuses invalid namespaces and keys', async () => {
  const store = await open();
  const put = (namespace: string[], key = 'k') => store.batch([{ namespace, key, value: {} }]);
  for (const namespace of [[], [''], ['a.b'], ['a', ''], ['langgraph'], ['nul \u0000'], ['\ud800']])
    await expect(put(namespace), JSON.stringify(namespace)).rejects.toMatchObject({ code: 'STORE_NAMESPACE_INVALID' });
  await expect(put(['a'], 'nul \u0000')).rejects.toMatchObject({ code: 'STORE_KEY_INVALID' });
});

test('refuses an item whose namespace and key are too long for an index of Postgres', async () => {
  const store = await open();
  const tooLong = { code: 'STORE_KEY_INVALID', class: 'caller', message: expect.stringContaining('too long') };
  const text = randomBytes(1_400).toString('hex');
  await expect(store.put(['a'], text, {})).rejects.toMatchObject(tooLong);
  await expect(store.put([text], 'k', {})).rejects.toMatchObject(tooLong);
  // One of several items.
  const items = [{ namespace: ['a'], key: 'b', value: {} }].concat({ namespace: ['a'], key: text, value: {} });
  await expect(store.batch(items)).rejects.toMatchObject(tooLong);
  expect(await store.search(['a'])).toEqual([]);
  await store.put(['a'], text.slice(0, 2_000), {});
  expect(await store.get(['a'], text)).toBeNull();
});

test('isolates the items of two deployments', async () => {
  const [mine, other] = [await open(), await open()];
  await mine.put(['n'], 'k', { of: 'mine' });
  await other.put(['n'], 'k', { of: 'other' });
  await other.delete(['n'], 'gone');
  expect(await mine.search([])).toMatchObject([{ value: { of: 'mine' } }]);
  await mine.delete(['n'], 'k');
  expect(await mine.listNamespaces()).toEqual([]);
  expect(await other.get(['n'], 'k')).toMatchObject({ value: { of: 'other' } });
});

test('executes a batch of many operations in few statements', async () => {
  const store = await open();
  const queries = vi.spyOn(threads.pool, 'query');
  const keys = Array.from({ length: 50 }, (_, index) => `${index}`);
  await store.batch([
    ...keys.map((key) => ({ namespace: ['b', key], key, value: { key } })),
    { namespace: ['b', '0'], key: '0', value: { key: 'last' } },
    { namespace: ['b', '1'], key: '1', value: null },
  ]);
  const got = await store.batch([
    ...keys.map((key) => ({ namespace: ['b', key], key })),
    { namespacePrefix: ['b'], limit: 100 },
  ]);
  expect(queries.mock.calls.length).toBe(4);
  queries.mockRestore();
  expect(got[0]).toMatchObject({ value: { key: 'last' } });
  expect(got[1]).toBeNull();
  expect(got[49]).toMatchObject({ key: '49' });
  expect(got[50]).toHaveLength(49);
});

test('hides and deletes expired items; a read with refresh extends the TTL', async () => {
  const deploymentId = await newDeployment();
  const sql = threads.database;
  const config: StoreConfig = { refreshOnRead: false, defaultTtlMinutes: 60 };
  const item = (key: string, ttl?: number | null) => ({ namespace: ['t'], key, value: {}, ttl });
  await putItems(sql, deploymentId, config, [item('default'), item('never', null), item('short', 1), item('over', 0)]);
  const minutes = async () =>
    Object.fromEntries(
      (
        await sql.query<{ key: string; minutes: number | null }>(
          `SELECT key, round(extract(epoch FROM expires_at - now()) / 60)::int AS minutes FROM agents.store_items WHERE deployment_id = $1`,
          [deploymentId],
        )
      ).map((row) => [row.key, row.minutes]),
    );
  expect(await minutes()).toEqual({ default: 60, never: null, short: 1, over: 0 });
  const read = (refresh: boolean) =>
    getItems(
      sql,
      deploymentId,
      ['short', 'over', 'never'].map((key) => ({ namespace: ['t'], key })),
      refresh,
    );
  await sql.execute(`UPDATE agents.store_items SET ttl_minutes = 30 WHERE deployment_id = $1 AND key = 'short'`, [
    deploymentId,
  ]);
  expect((await read(false)).map((found) => found?.key)).toEqual(['short', undefined, 'never']);
  expect((await minutes()).short).toBe(1);
  await read(true);
  expect((await minutes()).short).toBe(30);
  const store = new AgentStore(threads.pool, deploymentId, { refreshOnRead: true });
  await sql.execute(`UPDATE agents.store_items SET ttl_minutes = 90 WHERE deployment_id = $1 AND key = 'short'`, [
    deploymentId,
  ]);
  expect(keysOf(await store.search(['t']))).toEqual(['default', 'never', 'short']);
  expect((await minutes()).short).toBe(90);
  expect(await deleteExpiredItems(sql, deploymentId)).toBe(1);
  expect(await minutes()).toEqual({ default: 60, never: null, short: 90 });
});

describe('vector search', () => {
  /** Embeds a text as the counts of the characters a, b and c. */
  const embed: Embedder = async (texts) =>
    texts.map((text) => ['a', 'b', 'c'].map((character) => text.split(character).length - 1));
  const config: StoreConfig = { refreshOnRead: true, index: { embed, dims: 3, fields: ['text', 'lines[*].say'] } };

  test('ranks items by their best text, nearest first, and items without text last', async () => {
    const store = await open(config);
    await store.put(['v'], 'a', { text: 'aaaa' });
    await store.put(['v'], 'ab', { text: 'aabb' });
    await store.put(['v'], 'lines', { lines: [{ say: 'c' }, { say: 'aaab' }, { say: 5 }] });
    await store.put(['v'], 'none', { text: 7 });
    await store.put(['v'], 'hidden', { text: 'aaaa' }, false);
    await store.put(['v'], 'else', { text: 'aaaa', title: 'bbbb' }, ['title']);
    await store.put(['v2'], 'elsewhere', { text: 'aaaa' });
    const found = await store.search(['v'], { query: 'a' });
    expect(found.slice(0, 4).map(({ key, score }) => [key, score && Math.round(score * 1000)])).toEqual([
      ['a', 1000],
      ['lines', 949],
      ['ab', 707],
      ['else', 0],
    ]);
    expect(keysOf(found.slice(4))).toEqual(['hidden', 'none']);
    expect(
      keysOf(await store.search(['v'], { query: 'a', limit: 1, offset: 1, filter: { text: { $ne: 'x' } } })),
    ).toEqual(['lines']);

    await store.put(['v'], 'a', { text: 'bbbb' });
    await store.put(['v'], 'lines', { lines: [] });
    const after = await store.search(['v'], { query: 'a', limit: 2 });
    expect(after.map(({ key }) => key)).toEqual(['ab', expect.stringMatching(/^(a|else)$/)]);
  });

  test('indexes a path once, however it is written', async () => {
    const deploymentId = await newDeployment();
    const store = new AgentStore(threads.pool, deploymentId, config);
    await store.put(['p'], 'k', { list: ['a', 'b'] }, ['list[*]', 'list[*].', '.list.[*]', 'list[0]']);
    const rows = await threads.database.query<{ path: string }>(
      'SELECT path FROM agents.store_vectors WHERE deployment_id = $1 ORDER BY path',
      [deploymentId],
    );
    expect(rows.map(({ path }) => path)).toEqual(['list[*].0', 'list[*].1', 'list[0]']);
  });

  test('refuses an item whose paths select too many texts or values', async () => {
    const store = await open(config);
    const put = (count: number, element: unknown, index: string[]) =>
      store.put(['many'], 'k', { a: Array(count).fill(element) }, index);
    const tooMany = { code: 'STORE_TOO_MANY_TEXTS' };
    await expect(put(10_001, 'a', ['a[*]'])).rejects.toMatchObject(tooMany);
    await expect(put(5_001, { b: 'a', c: 'b' }, ['a[*].b', 'a[*].c'])).rejects.toMatchObject(tooMany);
    const missing = Array.from({ length: 100 }, (_, index) => `a[*].b${index}`);
    await expect(put(20_000, {}, missing)).rejects.toMatchObject(tooMany);
    await put(10_000, 'a', ['a[*]']);
    expect(await store.get(['many'], 'k')).toMatchObject({ value: { a: { length: 10_000 } } });
  });

  test('compares ten thousand vectors, and refuses one more', async () => {
    const listItems = (length: number) =>
      Array.from({ length }, (_, index) => ({
        namespace: ['m'],
        key: `${index}`,
        value: { text: 'abc'.slice(index % 3) },
      }));
    // The statistics of Postgres know only another deployment, so it expects that the new one has hardly any items.
    await (await open(config)).batch(listItems(2_000));
    await threads.database.query('ANALYZE agents.store_items, agents.store_vectors');
    const store = await open(config);
    await store.batch(listItems(10_000));
    expect((await store.search(['m'], { query: 'c' }))[0]).toMatchObject({ value: { text: 'c' }, score: 1 });
    await store.put(['m'], 'more', { text: 'a' });
    await expect(store.search(['m'], { query: 'c' })).rejects.toMatchObject({ code: 'STORE_TOO_MANY_VECTORS' });
    expect(await store.search(['m'], { query: 'c', filter: { text: 'c' }, limit: 1 })).toMatchObject([{ score: 1 }]);
  });

  test.each<[string, Embedder]>([
    ['too few vectors', async () => []],
    ['vectors of another length', async (texts) => texts.map(() => [1, 2])],
    ['values that are not numbers', async (texts) => texts.map(() => [1, 2, Number.NaN])],
    ['a rejection', async () => Promise.reject(new Error('boom'))],
  ])('refuses an item if the embedder returns %s, and stores nothing', async (_, broken) => {
    const store = await open({ ...config, index: { embed: broken, dims: 3, fields: ['text'] } });
    await expect(store.put(['v'], 'k', { text: 'a' })).rejects.toMatchObject({ code: 'STORE_EMBEDDER_UNUSABLE' });
    expect(await store.get(['v'], 'k')).toBeNull();
  });

  test('stores numbers that are too small for Postgres', async () => {
    const tiny: Embedder = async (texts) => texts.map(() => [1, 1e-60, -1e-300]);
    const store = await open({ ...config, index: { embed: tiny, dims: 3, fields: ['text'] } });
    await store.put(['v'], 'k', { text: 'a' });
    expect(await store.search(['v'], { query: 'b' })).toMatchObject([{ key: 'k', score: 1 }]);
  });

  test('loads an embedder that is a function or an object of a project module', async () => {
    const folder = folderForTest();
    await writeFile(
      join(folder, 'embed.mjs'),
      `export const fn = async (texts) => texts.map((text) => [text.length]);
      export default { embedDocuments: async (texts) => texts.map(() => [7]) }; export const not = 5;`,
    );
    expect(await (await loadEmbedder('./embed.mjs:fn', folder))(['abc'])).toEqual([[3]]);
    expect(await (await loadEmbedder('./embed.mjs', folder))(['abc'])).toEqual([[7]]);
    for (const wrong of [
      './embed.mjs:gone',
      './embed.mjs:not',
      './gone.mjs:fn',
      'nobody:model',
      'openai:not-installed',
      'word',
    ])
      await expect(loadEmbedder(wrong, folder), wrong).rejects.toMatchObject({ code: 'STORE_EMBEDDER_UNUSABLE' });
  });
});
