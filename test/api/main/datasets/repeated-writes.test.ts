import { randomUUID } from 'node:crypto';
import type { Client } from 'langsmith';
import { beforeAll, describe, expect, it } from 'vitest';
import { forSuite } from '../../../for-suite.ts';
import { openClient } from '../../open-client.ts';
import { addOrganization, startApi } from '../../start-api.ts';

/** The stock SDKs repeat a request if the connection ends before the response. */

const api = forSuite(() => startApi({ config: { retentionLonglivedDays: 400 } }));
let client: Client;
let key: string;
/** Number of next responses to POST requests that the client does not get. */
let lostResponses = 0;

beforeAll(async () => {
  ({ adminKey: key } = await addOrganization(api.database, 'acme'));
  const fetchImplementation: typeof fetch = async (input, init) => {
    const response = await fetch(input, init);
    if (init?.method !== 'POST' || lostResponses === 0) return response;
    lostResponses -= 1;
    throw new TypeError('fetch failed');
  };
  client = await openClient(api, key, { fetchImplementation });
});

const ask = (url: string, body: object) => api.ask(key, 'POST', url, body);

async function createTagValue(): Promise<string> {
  const tagKeys = '/workspaces/current/tag-keys';
  const { id } = (await ask(tagKeys, { key: randomUUID() })).body;
  return (await ask(`${tagKeys}/${id}/tag-values`, { value: 'search' })).body.id;
}

/** Sends a request twice, expects the same answer, and a conflict for each of the changes. */
async function expectRepeatable(url: string, body: object, changes: readonly object[]): Promise<void> {
  const made = await ask(url, body);
  expect(made.status).toBe(200);
  expect(await ask(url, body)).toEqual(made);
  for (const change of changes) expect(await ask(url, { ...body, ...change })).toMatchObject({ status: 409 });
}

describe('a repeated request to create examples', () => {
  it('creates them once, and returns their version', async () => {
    const { id } = await client.createDataset(randomUUID());
    lostResponses = 1;
    const examples = [1, 2].map((n) => ({
      dataset_id: id,
      inputs: { n },
      outputs: { m: n },
      metadata: { k: n },
      split: 'test',
    }));
    const made = await client.createExamples(examples);
    expect([made.map(({ inputs }) => inputs), lostResponses]).toEqual([[{ n: 1 }, { n: 2 }], 0]);
    expect(await client.readDataset({ datasetId: id })).toMatchObject({ example_count: 2 });
    expect((await api.ask(key, 'GET', `/datasets/${id}/versions`)).body).toHaveLength(1);
  });

  it('is a conflict if the content differs, or only some of them exist', async () => {
    const { id: dataset_id } = await client.createDataset(randomUUID());
    const [first, second] = [1, 2].map((n) => ({ id: randomUUID(), dataset_id, inputs: { n }, outputs: { n } }));
    const made = await ask('/examples', first!);
    expect(await ask('/examples', first!)).toEqual(made);
    for (const change of [{ inputs: {} }, { outputs: null }, { metadata: { k: 1 } }, { split: 'test' }]) {
      expect(await ask('/examples', { ...first, ...change })).toMatchObject({ status: 409 });
    }
    expect(await ask('/examples/bulk', [first!, second!])).toMatchObject({ status: 409 });
    await ask('/examples', second!);
    expect(await ask('/examples/bulk', [first!, second!])).toMatchObject({ status: 409 });
    await api.ask(key, 'PATCH', `/examples/${first!.id}`, { inputs: { n: 3 } });
    expect(await ask('/examples', first!)).toMatchObject({ status: 409 });
  });

  it('creates their attachments once, and is a conflict if these differ', async () => {
    const { id: dataset_id } = await client.createDataset(randomUUID());
    lostResponses = 1;
    const example = { id: randomUUID(), dataset_id, inputs: { n: 1 } };
    const create = (attachments: Record<string, [string, Uint8Array]>) =>
      client.createExamples([{ ...example, attachments }]);
    const bytes = Buffer.from('hello');
    await create({ a: ['text/plain', bytes], b: ['image/png', bytes] });
    expect([lostResponses, (await client.readExample(example.id)).attachments]).toMatchObject([
      0,
      { a: { mime_type: 'text/plain' }, b: { mime_type: 'image/png' } },
    ]);
    for (const attachments of [
      {},
      { a: ['text/plain', bytes] },
      { a: ['text/plain', bytes], c: ['image/png', bytes] },
      { a: ['text/html', bytes], b: ['image/png', bytes] },
      { a: ['text/plain', bytes], b: ['image/png', Buffer.from('hollo')] },
    ] as Record<string, [string, Uint8Array]>[]) {
      await expect(create(attachments)).rejects.toThrow('409');
    }
    await client.updateExamples([
      { id: example.id, dataset_id, inputs: { n: 1 }, attachments_operations: { retain: ['a'] } },
    ]);
    await expect(create({ a: ['text/plain', bytes], b: ['image/png', bytes] })).rejects.toThrow('409');
  });
});

it('a repeated request to rename attachments of an example keeps the new names', async () => {
  const { id: dataset_id } = await client.createDataset(randomUUID());
  const id = randomUUID();
  const bytes = Buffer.from('hello');
  const attachments: Record<string, [string, Uint8Array]> = { a: ['text/plain', bytes], b: ['text/plain', bytes] };
  await client.createExamples([{ id, dataset_id, inputs: { n: 1 }, attachments }] as never);
  const readNames = async () => Object.keys((await client.readExample(id)).attachments ?? {}).sort();
  const rename = (attachments_operations: object, more = {}) =>
    client.updateExamples([{ id, dataset_id, attachments_operations, ...more }] as never);
  const operations = { rename: { a: 'c' }, retain: ['b'] };
  for (let sent = 0; sent < 2; sent += 1) {
    await rename(operations);
    expect(await readNames()).toEqual(['b', 'c']);
  }
  // These would remove an attachment, so they are no repetitions.
  await expect(rename({ rename: { a: 'c' } })).rejects.toThrow('no attachment \\"a\\"');
  await expect(rename({ rename: { a: 'd' }, retain: ['b', 'c'] })).rejects.toThrow('no attachment');
  for (let sent = 0; sent < 2; sent += 1) {
    await rename({ rename: { c: 'd' } }, { attachments: { e: ['text/plain', bytes] } });
    expect(await readNames()).toEqual(['d', 'e']);
  }
});

it('a repeated request to rename attachments keeps each of them if a new name is a former name of another', async () => {
  const { id: dataset_id } = await client.createDataset(randomUUID());
  const id = randomUUID();
  const attachments: Record<string, [string, Uint8Array]> = {
    a: ['text/plain', Buffer.from('hello')],
    b: ['image/png', Buffer.from('image')],
  };
  await client.createExamples([{ id, dataset_id, inputs: { n: 1 }, attachments }] as never);
  for (let sent = 0; sent < 2; sent += 1) {
    await client.updateExamples([{ id, dataset_id, attachments_operations: { rename: { a: 'b', b: 'c' } } }] as never);
    expect((await client.readExample(id)).attachments).toMatchObject({
      b: { mime_type: 'text/plain' },
      c: { mime_type: 'image/png' },
    });
  }
});

it('a repeated request to create a project with every field returns it', async () => {
  const [dataset, tag_value_ids] = [(await client.createDataset(randomUUID())).id, [await createTagValue()]];
  const project = {
    ...{ id: randomUUID(), name: randomUUID(), description: 'one', extra: { metadata: { a: 1 }, b: [1.5] } },
    ...{ start_time: '2026-01-01T00:00:00.123456Z', end_time: '2026-01-02T00:00:00+02:00', tag_value_ids },
    ...{ default_dataset_id: dataset, trace_tier: 'longlived', longlived_ttl_days: 400 },
    ...{ num_examples: 1, num_repetitions: 2, evaluator_keys: ['a', 'b'] },
  };
  const made = await ask('/sessions', project);
  expect(made.status).toBe(200);
  expect(await ask('/sessions', project)).toEqual(made);
});

it('a repeated request to create an experiment returns it, and another experiment of the name is a conflict', async () => {
  const { id: reference_dataset_id } = await client.createDataset(randomUUID());
  const experiment = { id: randomUUID(), name: randomUUID(), reference_dataset_id, extra: { metadata: { a: 1 } } };
  const made = await ask('/sessions', experiment);
  expect(made.status).toBe(200);
  expect(await ask('/sessions', experiment)).toEqual(made);
  const tag_value_ids = [await createTagValue()];
  for (const change of [
    { id: randomUUID() },
    { name: randomUUID() },
    { extra: {} },
    { reference_dataset_id: null },
    { description: 'other' },
    { start_time: '2026-01-01T00:00:00Z' },
    { trace_tier: 'longlived' },
    { default_dataset_id: reference_dataset_id },
    { longlived_ttl_days: 20 },
    { num_repetitions: 2 },
    { evaluator_keys: ['a'] },
    { tag_value_ids },
  ]) {
    expect(await ask('/sessions', { ...experiment, ...change })).toMatchObject({ status: 409 });
  }
});

it('a repeated request to create an annotation queue returns it', async () => {
  const queueId = randomUUID();
  lostResponses = 1;
  const queue = await client.createAnnotationQueue({ name: 'q', queueId, description: 'one' });
  expect([queue.id, lostResponses]).toEqual([queueId, 0]);

  const changes = [
    { name: 'other' },
    { description: 'other' },
    { metadata: {} },
    { rubric_items: [{ feedback_key: 'b' }] },
    { reservation_minutes: 2 },
  ];
  const body = { id: randomUUID(), name: 'q', description: 'one', rubric_items: [{ feedback_key: 'a' }] };
  await expectRepeatable('/annotation-queues', { ...body, metadata: { a: 1 } }, changes);
});

it('a repeated request to create a comparative experiment returns it', async () => {
  const { id: dataset } = await client.createDataset(randomUUID());
  const [first, second] = await Promise.all(
    [1, 2].map(() => client.createProject({ projectName: randomUUID(), referenceDatasetId: dataset })),
  );
  lostResponses = 1;
  const id = randomUUID();
  const comparison = { id, name: 'c', experimentIds: [first!.id, second!.id], referenceDatasetId: dataset };
  expect((await client.createComparativeExperiment({ ...comparison, metadata: { a: 1 } })).id).toBe(id);
  expect(lostResponses).toBe(0);

  const body = { id: randomUUID(), name: 'c', experiment_ids: [first!.id, second!.id], extra: { a: 1 } };
  const changes = [
    { name: 'other' },
    { description: 'other' },
    { experiment_ids: [first!.id] },
    { extra: null },
    { created_at: '2026-01-01T00:00:00Z' },
  ];
  await expectRepeatable('/datasets/comparative', body, changes);
});

it('a repeated request to create a dataset with an id returns it', async () => {
  const body = {
    ...{ id: randomUUID(), name: randomUUID(), description: 'one', data_type: 'chat', extra: { metadata: { a: 1.5 } } },
    ...{ inputs_schema_definition: { type: 'object' }, created_at: '2026-01-01T00:00:00Z' },
    tag_value_ids: [await createTagValue()],
  };
  await expectRepeatable('/datasets', body, [
    { id: randomUUID() },
    { name: randomUUID() },
    { description: null },
    { data_type: 'kv' },
    { extra: {} },
    { inputs_schema_definition: null },
    { outputs_schema_definition: { type: 'object' } },
    { externally_managed: true },
    { created_at: '2026-01-02T00:00:00Z' },
    { tag_value_ids: [await createTagValue()] },
  ]);
});

describe('a repeated upload of a file', () => {
  async function upload(fields: Record<string, string>, csv: string) {
    const form = new FormData();
    for (const [field, value] of Object.entries({ input_keys: 'a', ...fields })) form.append(field, value);
    form.append('file', new Blob([csv], { type: 'text/csv' }), 'a.csv');
    const request = { method: 'POST', headers: { 'x-api-key': key }, body: form };
    const response = await fetch(`${await api.listen()}/datasets/upload`, request);
    return { status: response.status, body: await response.json() };
  }
  const conflict = { status: 409 };

  it('with the same id gets the dataset, and that of another file is a conflict', async () => {
    const fields = { id: randomUUID(), name: randomUUID(), metadata_keys: 'b' };
    const rows = Array.from({ length: 2_500 }, (_, index) => `${index},m`);
    const csv = (lines: readonly string[]) => `a,b\n${lines.map((line) => `${line}\n`).join('')}`;
    const made = await upload(fields, csv(rows));
    expect(made).toMatchObject({ status: 200, body: { id: fields.id, example_count: 2_500 } });
    expect(await upload(fields, csv(rows))).toEqual(made);
    expect(await upload({ ...fields, name: randomUUID() }, csv(rows))).toMatchObject(conflict);
    expect(await upload({ ...fields, input_keys: 'b' }, csv(rows))).toMatchObject(conflict);
    for (const others of [rows.slice(1), [...rows, '1,m'], [...rows].reverse(), [...rows.slice(1), '1,m'], []])
      expect(await upload(fields, csv(others))).toMatchObject(conflict);
    expect((await api.ask(key, 'GET', `/datasets/${fields.id}/versions`)).body).toHaveLength(1);
  });

  it('is a conflict after the dataset was changed, and without an id', async () => {
    const [id, name] = [randomUUID(), randomUUID()];
    expect(await upload({ id, name }, 'a\n1\n')).toMatchObject({ status: 200 });
    await ask('/examples', { dataset_id: id, inputs: {} });
    expect(await upload({ id, name }, 'a\n1\n')).toMatchObject(conflict);
    expect(await upload({ name: 'without id' }, 'a\n1\n')).toMatchObject({ status: 200 });
    expect(await upload({ name: 'without id' }, 'a\n1\n')).toMatchObject(conflict);
  });
});

it('a repeated request to create feedback tokens returns them', async () => {
  const token = (changes = {}) => ({
    ...{ id: randomUUID(), run_id: randomUUID(), feedback_key: 'k', expires_in: { hours: 3 } },
    ...changes,
  });
  await expectRepeatable('/feedback/tokens', token(), [
    { run_id: randomUUID() },
    { feedback_key: 'other' },
    { expires_in: { hours: 4 } },
    { expires_in: { hours: 2 } },
    { expires_in: { hours: 2, minutes: 55 } },
  ]);
  const [first, second] = [token(), token()];
  const made = await ask('/feedback/tokens', [first, second]);
  expect(made.status).toBe(200);
  expect(await ask('/feedback/tokens', [first, second])).toEqual(made);
  expect(await ask('/feedback/tokens', [first, token()])).toMatchObject({ status: 409 });
});
