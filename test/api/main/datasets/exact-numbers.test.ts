import { randomUUID } from 'node:crypto';
import { beforeAll, describe, expect, test } from 'vitest';
import { forSuite } from '../../../for-suite.ts';
import { addOrganization, startApi } from '../../start-api.ts';
import { createDataset, sendExampleParts } from './dataset-requests.ts';

/** Numbers that JavaScript would change, as Python writes them. */
const exact = '{"id":1234567890123456789,"list":[98765432109876543210],"float":1.0,"huge":1e400}';

const maxRunBytes = 100_000;
const api = forSuite(() => startApi({ config: { maxRunBytes } }));
let key: string;
beforeAll(async () => {
  ({ adminKey: key } = await addOrganization(api.database, 'acme'));
});

async function send(method: 'GET' | 'POST' | 'PATCH', url: string, payload?: string) {
  const headers = { 'x-api-key': key, ...(payload && { 'content-type': 'application/json' }) };
  const { statusCode, body } = await api.server.inject({ method, url, headers, ...(payload && { payload }) });
  expect([Math.floor(statusCode / 100), body]).toEqual([2, expect.any(String)]);
  return body;
}

const create = async (url: string, payload: string) => JSON.parse(await send('POST', url, payload)).id as string;
const withSplit = (metadata: string, ...splits: string[]) =>
  `${metadata.slice(0, -1)},"dataset_split":${JSON.stringify(splits)}}`;

describe('the metadata of examples keeps its numbers', () => {
  test('if they are created, changed and added to splits by multipart', async () => {
    const datasetId = await createDataset(api, key);
    const id = randomUUID();
    const parts = [
      [id, `{"metadata":${exact}}`],
      [`${id}.inputs`, {}],
    ] as const;
    expect(await sendExampleParts(api, { key, datasetId }, parts)).toMatchObject({ status: 201 });
    const read = () => send('GET', `/examples/${id}`);
    expect(await read()).toContain(withSplit(exact, 'base'));
    expect(await sendExampleParts(api, { key, datasetId, method: 'PATCH' }, [[id, { split: 'test' }]])).toMatchObject({
      status: 201,
    });
    expect(await read()).toContain(withSplit(exact, 'test'));
    const operations = '[{"key":"id","operation":"SET","value":9007199254740993}]';
    const change = `{"example_ids":["${id}"],"operations":${operations}}`;
    await send('PATCH', `/v1/platform/datasets/${datasetId}/examples/metadata`, change);
    expect(await read()).toContain('"list":[98765432109876543210],"float":1.0,"huge":1e400');
    expect(await read()).toContain('"id":9007199254740993');
    expect(await send('GET', `/datasets/${datasetId}/jsonl`)).toContain('"id":9007199254740993');
  });

  test('and finds examples by them', async () => {
    const dataset = await createDataset(api, key);
    const payload = (id: string) => `{"dataset_id":"${dataset}","inputs":{},"metadata":{"id":${id},"at":0.50}}`;
    const id = await create('/examples', payload('1234567890123456789'));
    await create('/examples', payload('1234567890123456788'));
    const list = async (parameters: Record<string, string>) =>
      JSON.parse(await send('GET', `/examples?${new URLSearchParams({ dataset, ...parameters })}`));
    const metadata = '{"id":1234567890123456789,"at":0.5}';
    expect(await list({ metadata })).toMatchObject([{ id }]);
    expect(await list({ filter: `has(metadata, '${metadata}')` })).toMatchObject([{ id }]);
    expect(await list({ metadata: '{"id":1234567890123456790}' })).toEqual([]);
  });
});

test('examples that are sent as JSON keep the numbers of inputs and outputs', async () => {
  const dataset = await createDataset(api, key);
  const content = (text: string) => `"dataset_id":"${dataset}","inputs":${text},"outputs":${text},"metadata":${text}`;
  const expected = [`"inputs":${exact}`, `"outputs":${exact}`, withSplit(exact, 'base')];
  const id = await create('/examples', `{${content(exact)}}`);
  for (const part of expected) expect(await send('GET', `/examples/${id}`)).toContain(part);
  const answer = await send('POST', '/examples/bulk', `[{${content('{}')}},{${content(exact)}}]`);
  for (const part of expected) expect(answer).toContain(part);
  const other = await create('/examples', `{${content('{}')}}`);
  await send('PATCH', `/examples/${other}`, `{${content(exact)}}`);
  for (const part of expected) expect(await send('GET', `/examples/${other}`)).toContain(part);
  const third = await create('/examples', `{${content('{}')}}`);
  await send('PATCH', '/examples/bulk', `[{"id":"${third}",${content(exact)}}]`);
  for (const part of expected) expect(await send('GET', `/examples/${third}`)).toContain(part);
});

test('the fields of an example in a part are read only if the part is small enough', async () => {
  const [datasetId, id] = [await createDataset(api, key), randomUUID()];
  const parts = [
    [id, `{"metadata":[${'1,'.repeat(maxRunBytes / 2)}`],
    [`${id}.inputs`, {}],
  ] as const;
  const refused = { status: 413, body: { code: 'EXAMPLE_TOO_LARGE' } };
  // The part is not valid JSON.
  expect(await sendExampleParts(api, { key, datasetId }, parts)).toMatchObject(refused);
});

describe('numbers that only Python writes are read as null', () => {
  const python = '{"score":NaN,"text":"NaN","bounds":[-Infinity,Infinity],"id":1234567890123456789}';
  const stored = '{"score":null,"text":"NaN","bounds":[null,null],"id":1234567890123456789}';

  test('in the parts of an example', async () => {
    const datasetId = await createDataset(api, key);
    const id = randomUUID();
    const parts = [
      [id, `{"metadata":${python}}`],
      [`${id}.inputs`, python],
      [`${id}.outputs`, python],
    ] as const;
    expect(await sendExampleParts(api, { key, datasetId }, parts)).toMatchObject({ status: 201 });
    const example = await send('GET', `/examples/${id}`);
    for (const field of ['inputs', 'outputs']) expect(example).toContain(`"${field}":${stored}`);
    expect(example).toContain(withSplit(stored, 'base'));
  });

  test('in a JSON body', async () => {
    const id = await create('/datasets', `{"name":"${randomUUID()}","extra":{"metadata":${python}}}`);
    expect(await send('GET', `/datasets/${id}`)).toContain(`"metadata":${stored}`);
  });

  test('in a prompt', async () => {
    await send('POST', '/repos', '{"repo_handle":"python","is_public":false}');
    await send('POST', '/commits/-/python', `{"manifest":${python}}`);
    expect(await send('GET', '/commits/-/python/latest')).toContain(`"manifest":${stored}`);
  });

  test('in feedback', async () => {
    const ids = `"id":"${randomUUID()}","run_id":"${randomUUID()}"`;
    expect(await send('POST', '/feedback', `{${ids},"key":"k","score":NaN,"value":${python}}`)).toContain(stored);
  });
});

describe('metadata keeps its numbers', () => {
  test('of a dataset', async () => {
    const id = await create('/datasets', `{"name":"${randomUUID()}","extra":{"metadata":${exact}}}`);
    expect(await send('GET', `/datasets/${id}`)).toContain(exact);
    expect(await send('GET', `/v2/datasets?id=${id}`)).toContain(exact);
    await send('PATCH', `/datasets/${id}`, `{"metadata":${exact.replace('1.0', '2.0')}}`);
    const metadata = '{"id":1234567890123456789}';
    const found = await send('GET', `/datasets?${new URLSearchParams({ id, metadata })}`);
    expect(found).toContain(exact.replace('1.0', '2.0'));
  });

  test('of a project', async () => {
    const extra = `{"metadata":${exact},"id":1234567890123456789}`;
    const id = await create('/sessions', `{"name":"${randomUUID()}","extra":${extra}}`);
    expect(await send('GET', `/sessions/${id}`)).toContain(`"extra":${extra}`);
    expect(await send('GET', `/sessions?id=${id}`)).toContain(`"extra":${extra}`);
    const changed = extra.replace('"float"', '"changed":2.0,"float"');
    await send('PATCH', `/sessions/${id}`, `{"extra":${changed}}`);
    expect(await send('GET', `/sessions/${id}?include_stats=true`)).toContain(`"extra":${changed}`);
    const metadata = '{"id":1234567890123456789}';
    const found = await send('GET', `/sessions?${new URLSearchParams({ id, metadata })}`);
    expect(found).toContain(`"extra":${changed}`);
  });

  test('of an annotation queue', async () => {
    const id = await create('/annotation-queues', `{"name":"queue","metadata":${exact}}`);
    expect(await send('GET', `/annotation-queues/${id}`)).toContain(`"metadata":${exact}`);
    await send('PATCH', `/annotation-queues/${id}`, `{"metadata":{"id":9007199254740993}}`);
    expect(await send('GET', `/annotation-queues?ids=${id}`)).toContain('"metadata":{"id":9007199254740993}');
  });

  test('of a comparison', async () => {
    const dataset = await createDataset(api, key);
    const session = await create('/sessions', JSON.stringify({ name: randomUUID(), reference_dataset_id: dataset }));
    const ids = `"experiment_ids":["${session}"],"reference_dataset_id":"${dataset}"`;
    await send('POST', '/datasets/comparative', `{"name":"comparison",${ids},"extra":{"metadata":${exact}}}`);
    expect(await send('GET', `/datasets/${dataset}/comparative`)).toContain(`"extra":{"metadata":${exact}}`);
  });
});
