import { randomUUID } from 'node:crypto';
import { Client } from 'langsmith';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type ApiUnderTest, addOrganization, startApi } from '../../start-api.ts';

/** The stock SDKs repeat a request if the connection ends before the response. */

let api: ApiUnderTest;
let client: Client;
let key: string;
/** Number of next responses to POST requests that the client does not get. */
let lostResponses = 0;

beforeAll(async () => {
  api = await startApi({ config: { retentionLonglivedDays: 400 } });
  ({ adminKey: key } = await addOrganization(api.database, 'acme'));
  const apiUrl = await api.server.listen({ port: 0, host: '127.0.0.1' });
  const fetchImplementation: typeof fetch = async (input, init) => {
    const response = await fetch(input, init);
    if (init?.method !== 'POST' || lostResponses === 0) return response;
    lostResponses -= 1;
    throw new TypeError('fetch failed');
  };
  client = new Client({ apiUrl, apiKey: key, fetchImplementation });
});
afterAll(() => api.close());

const ask = (url: string, body: object) => api.ask(key, 'POST', url, body);

async function createTagValue(): Promise<string> {
  const tagKeys = '/workspaces/current/tag-keys';
  const { id } = (await ask(tagKeys, { key: randomUUID() })).body;
  return (await ask(`${tagKeys}/${id}/tag-values`, { value: 'search' })).body.id;
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
