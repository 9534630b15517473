import { randomUUID } from 'node:crypto';
import { Client } from 'langsmith-0-12';
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { forSuite } from '../../../for-suite.ts';
import { openClient } from '../../open-client.ts';
import { addOrganization, startApi } from '../../start-api.ts';

/** Requests that only newer stock SDKs send: changes of metadata, and dataset lists of version 2 of the API. */

const api = forSuite(() => startApi({ config: { maxRunBytes: 100_000 } }));
let client: Client;
let key: string;

beforeAll(async () => {
  const acme = await addOrganization(api.database, 'acme');
  key = acme.adminKey;
  const options = { autoBatchTracing: false, callerOptions: { maxRetries: 0 } };
  client = await openClient(api, key, options, Client);
});

async function addDataset() {
  const { id } = await client.createDataset(randomUUID());
  const made = await client.createExamples(
    [1, 2].map((n) => ({ dataset_id: id, inputs: { n }, metadata: { n, tags: ['a'], word: 'x' } })),
  );
  return { id, examples: made.map((example) => example.id) as [string, string] };
}

const readMetadata = async (id: string, asOf = 'latest') =>
  (await api.ask(key, 'GET', `/examples/${id}?as_of=${asOf}`)).body.metadata;

it('returns only the selected fields of examples', async () => {
  const { id, examples } = await addDataset();
  const listed: object[] = [];
  const query = {
    datasetId: id,
    exampleIds: [examples[0]],
    select: ['outputs', 'metadata'],
    excludeDefaultFields: true,
  };
  for await (const example of client.listExamples(query)) listed.push(example);
  const metadata = { n: 1, tags: ['a'], word: 'x', dataset_split: ['base'] };
  expect(listed).toEqual([{ id: examples[0], outputs: null, metadata }]);
});

it('lets the stock SDK delete an example of a dataset; earlier versions keep it, and a second call has no effect', async () => {
  const [{ id, examples }, other] = [await addDataset(), await addDataset()];
  const { as_of: before } = await client.readDatasetVersion({ datasetId: id, tag: 'latest' });
  const remove = (exampleId: string, dataset_id = id) => client.datasets.examples.delete(exampleId, { dataset_id });
  await remove(examples[0]);
  const { as_of: after } = await client.readDatasetVersion({ datasetId: id, tag: 'latest' });
  await remove(examples[0]);
  expect((await client.readDatasetVersion({ datasetId: id, tag: 'latest' })).as_of).toBe(after);
  const list = async (asOf: string) =>
    (await api.ask(key, 'GET', `/examples?dataset=${id}&as_of=${encodeURIComponent(asOf)}`)).body.length;
  expect([await list(before), await list('latest')]).toEqual([2, 1]);
  for (const [exampleId, datasetId] of [
    [examples[1], other.id],
    [randomUUID(), id],
  ] as const)
    await expect(remove(exampleId, datasetId)).rejects.toMatchObject({ status: 404 });
  expect(await list('latest')).toBe(1);
});

describe('changes of metadata', () => {
  const change = (datasetId: string, payload: object) =>
    api.ask(key, 'PATCH', `/v1/platform/datasets/${datasetId}/examples/metadata`, payload);

  it('let the stock SDK change splits', async () => {
    const { id, examples } = await addDataset();
    await client.updateDatasetSplits({ datasetId: id, splitName: 'test', exampleIds: examples });
    await client.updateDatasetSplits({ datasetId: id, splitName: 'base', exampleIds: [examples[0]], remove: true });
    expect(await client.listDatasetSplits({ datasetId: id })).toEqual(['base', 'test']);
    expect(await readMetadata(examples[0])).toMatchObject({ dataset_split: ['test'], n: 1 });
    expect(await readMetadata(examples[1])).toMatchObject({ dataset_split: ['base', 'test'] });
  });

  it('apply in order, as one version, and skip what is not in the dataset', async () => {
    const [{ id, examples }, other] = [await addDataset(), await addDataset()];
    const before = await client.readDatasetVersion({ datasetId: id, tag: 'latest' });
    const [deleted, foreign] = [examples[1], other.examples[0]];
    await client.deleteExample(deleted);
    const { status, body } = await change(id, {
      example_ids: [examples[0].toUpperCase(), deleted, foreign, randomUUID()],
      operations: [
        { key: 'word', operation: 'set', value: { deep: [null] } },
        { key: 'tags', operation: 'ARRAY_ADD', values: ['b', 'a', 'b'] },
        { key: 'tags', operation: 'array_remove', values: ['a'] },
        { key: 'word', operation: 'SET', value: 'y' },
        { key: 'n', operation: 'ARRAY_ADD', values: ['1'] },
        { key: '__proto__', operation: 'SET', value: 1 },
      ],
    });
    expect([status, body.statuses.map((each: { status: string }) => each.status)]).toEqual([
      207,
      ['UPDATED', 'NOT_FOUND', 'NOT_FOUND', 'NOT_FOUND'],
    ]);
    const expected = `{"dataset_split":["base"],"tags":["b"],"word":"y","n":["1"],"__proto__":1}`;
    const [row] = await api.database.query<{ metadata: string }>(
      `SELECT metadata FROM examples WHERE id = $1 AND valid_to = 'infinity'`,
      [examples[0]],
    );
    expect(JSON.parse(row?.metadata ?? '')).toEqual(JSON.parse(expected));
    expect(await readMetadata(examples[0], before.as_of)).toMatchObject({ word: 'x', n: 1 });
    expect(await readMetadata(foreign)).toMatchObject({ word: 'x' });
    expect((await api.ask(key, 'GET', `/datasets/${id}/versions`)).body).toHaveLength(3);
    expect((await client.readDataset({ datasetId: id })).example_count).toBe(1);
  });

  it('make no version if nothing is in the dataset', async () => {
    const { id } = await addDataset();
    const operations = [{ key: 'a', operation: 'SET', value: 1 }];
    expect((await change(id, { example_ids: [randomUUID()], operations })).status).toBe(207);
    expect((await api.ask(key, 'GET', `/datasets/${id}/versions`)).body).toHaveLength(1);
    expect((await change(randomUUID(), { example_ids: [randomUUID()], operations })).status).toBe(404);
  });

  it('are limited', async () => {
    const { id, examples } = await addDataset();
    const set = { key: 'a', operation: 'SET', value: 1 };
    const add = { key: 'a', operation: 'ARRAY_ADD', values: ['x'] };
    for (const [operations, status] of [
      [[], 422],
      [Array(51).fill(set), 422],
      [Array(11).fill(add), 400],
      [[{ ...set, value: 'x'.repeat(70_000) }], 400],
      [[{ ...set, operation: 'DELETE' }], 422],
      [[{ ...set, key: '' }], 422],
      [['a', 'b'].map((name) => ({ ...set, key: name, value: 'x'.repeat(60_000) })), 413],
    ] as const) {
      const answer = await change(id, { example_ids: examples, operations });
      expect([operations.length, answer.status]).toEqual([operations.length, status]);
    }
    expect((await change(id, { example_ids: [], operations: [set] })).status).toBe(422);
    expect(await readMetadata(examples[0])).not.toHaveProperty('a');
  });
});

it('many removals from long arrays take no quadratic time', { timeout: 120_000 }, async () => {
  const large = await startApi();
  onTestFinished(() => large.close());
  const { adminKey } = await addOrganization(large.database, 'acme');
  const ask = async (method: 'POST' | 'PATCH' | 'GET', path: string, payload?: object) => {
    const { status, body } = await large.ask(adminKey, method, path, payload);
    expect([status, body]).toEqual([path.endsWith('metadata') ? 207 : 200, expect.anything()]);
    return body;
  };
  const { id: dataset_id } = await ask('POST', '/datasets', { name: randomUUID() });
  const tags = [...Array.from({ length: 400_000 }, (_, index) => index % 10), 'tag 5', '5'];
  const ids = [randomUUID(), randomUUID(), randomUUID(), randomUUID()];
  for (const id of ids) await ask('POST', '/examples', { id, dataset_id, inputs: {}, metadata: { tags } });
  const values = Array.from({ length: 1_000 }, (_, index) => `tag ${index}`);
  const before = process.cpuUsage();
  await ask('PATCH', `/v1/platform/datasets/${dataset_id}/examples/metadata`, {
    example_ids: ids,
    operations: Array.from({ length: 10 }, () => ({ key: 'tags', operation: 'ARRAY_REMOVE', values })),
  });
  expect(process.cpuUsage(before).user / 1_000).toBeLessThan(10_000);
  const kept = (await ask('GET', `/examples/${ids[0]}`)).metadata.tags;
  expect([kept.length, kept.at(-1)]).toEqual([400_001, '5']);
});

describe('datasets of version 2', () => {
  it('are listed by the stock SDK, page by page', async () => {
    const word = randomUUID();
    for (const n of [1, 2, 3]) await client.createDataset(`${word} ${n}`, { metadata: { n } });
    const list = async (query: object) => {
      const names: string[] = [];
      for await (const { name } of client.datasets.listV2({ name_contains: word, page_size: 2, ...query })) {
        names.push(name.slice(-1));
      }
      return names.join();
    };
    expect(await list({ sort_by: 'name', sort_order: 'asc' })).toBe('1,2,3');
    expect(await list({ sort_by: 'name' })).toBe('3,2,1');
    const [second] = (await api.ask(key, 'GET', `/datasets?name=${encodeURIComponent(`${word} 2`)}`)).body;
    await api.ask(key, 'POST', '/sessions', { name: randomUUID(), reference_dataset_id: second.id });
    // Datasets without experiments come last in both orders.
    expect(await list({ sort_by: 'last_session_start_time', sort_order: 'asc' })).toMatch(/^2,/);
    expect(await list({ sort_by: 'last_session_start_time', sort_order: 'desc' })).toMatch(/^2,/);
    expect(await list({ metadata: '{"n":2}' })).toBe('2');
    expect(await list({ data_type: ['llm'] })).toBe('');
    const page = (await api.ask(key, 'GET', `/api/v2/datasets?name_contains=${word}&page_size=3`)).body;
    expect(page).toMatchObject({ next_cursor: null, has_more: false });
    for (const [query, status] of [
      ['cursor=x', 400],
      ['page_size=101', 422],
      ['sort_order=up', 422],
    ] as const) {
      expect([query, (await api.ask(key, 'GET', `/api/v2/datasets?${query}`)).status]).toEqual([query, status]);
    }
  });
});
