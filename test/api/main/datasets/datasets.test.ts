import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { forSuite } from '../../../for-suite.ts';
import { collect } from '../../collect.ts';
import { openClient } from '../../open-client.ts';
import { addKey, addOrganization, startApi } from '../../start-api.ts';

const api = forSuite(() => startApi());
const acme = forSuite(() => addOrganization(api.database, 'acme'));

const client = forSuite(() => openClient(api, acme.adminKey, { autoBatchTracing: false }));

/** Sends a request with the key of the second workspace. */
const ask = (method: 'GET' | 'POST' | 'PATCH' | 'DELETE', url: string, payload?: object) =>
  api.ask(acme.workspaceKeys[1], method, url, payload);

describe('the stock SDK', () => {
  it('creates, finds, reads, changes, lists and deletes datasets', async () => {
    const metadata = { team: 'a', size: 2 };
    const made = await client.createDataset('first', { description: 'about', dataType: 'kv', metadata });
    expect(made).toMatchObject({
      name: 'first',
      description: 'about',
      data_type: 'kv',
      tenant_id: acme.workspaceIds[0],
    });
    expect(made).toMatchObject({ metadata, example_count: 0, session_count: 0, last_session_start_time: null });
    await expect(client.createDataset('first')).rejects.toThrow(/already exists/);

    expect(await client.hasDataset({ datasetName: 'first' })).toBe(true);
    expect(await client.hasDataset({ datasetName: 'never' })).toBe(false);
    expect(await client.hasDataset({ datasetId: made.id })).toBe(true);
    expect(await client.hasDataset({ datasetId: randomUUID() })).toBe(false);
    expect(await client.readDataset({ datasetName: 'first' })).toEqual(made);
    // The look-up of the Python SDK, for example before it deletes the dataset.
    const find = async (query: string) => (await api.ask(acme.adminKey, 'GET', `/datasets?limit=1&${query}`)).body;
    expect(await find('name=')).toEqual([]);
    expect(await find('name=&offset=0')).toMatchObject([{ id: made.id }]);
    expect(await client.readDataset({ datasetId: made.id })).toEqual(made);

    const changed = await client.updateDataset({ datasetId: made.id, name: 'renamed' });
    expect(changed).toMatchObject({ name: 'renamed', description: 'about', metadata });
    await client.createDataset('second', { metadata: { team: 'b' } });
    const names = async (query: Parameters<typeof client.listDatasets>[0]) =>
      (await collect(client.listDatasets(query))).map(({ name }) => name);
    expect(await names({})).toEqual(['second', 'renamed']);
    expect(await names({ datasetNameContains: 'SEC' })).toEqual(['second']);
    expect(await names({ datasetIds: [made.id] })).toEqual(['renamed']);
    expect(await names({ metadata: { team: 'a' } })).toEqual(['renamed']);

    await client.deleteDataset({ datasetName: 'renamed' });
    expect(await client.hasDataset({ datasetId: made.id })).toBe(false);
    expect((await client.createDataset('renamed')).id).not.toBe(made.id);
  });
});

describe('a list of datasets', () => {
  it('is paged, sorted and filtered, and has the total number in a header', async () => {
    const word = randomUUID();
    for (const [index, data_type] of ['kv', 'llm', 'chat', 'kv', 'kv'].entries()) {
      await ask('POST', '/datasets', { name: `${word} ${index}`, data_type });
    }
    const list = async (query: string) => {
      const url = `/datasets?name_contains=${word}&${query}`;
      const { headers, ...answer } = await api.server.inject({ url, headers: { 'x-api-key': acme.workspaceKeys[1] } });
      const names: string[] = answer.json().map(({ name }: { name: string }) => name.slice(word.length + 1));
      return [names.join(), headers['x-pagination-total']];
    };
    expect(await list('sort_by=name')).toEqual(['4,3,2,1,0', '5']);
    expect(await list('sort_by=name&sort_by_desc=false&limit=2')).toEqual(['0,1', '5']);
    expect(await list('sort_by=name&sort_by_desc=false&limit=2&offset=4')).toEqual(['4', '5']);
    expect(await list('limit=2&offset=10')).toEqual(['', '5']);
    expect(await list('sort_by=name&data_type=llm&data_type=chat')).toEqual(['2,1', '2']);
    expect(await list('data_type=llm')).toEqual(['1', '1']);
    const experiment = {
      name: randomUUID(),
      reference_dataset_id: (await ask('GET', `/datasets?name=${word}%202`)).body[0].id,
    };
    await ask('POST', '/sessions', experiment);
    expect(await list('limit=1')).toEqual(['2', '5']);
    expect((await ask('GET', `/datasets/${experiment.reference_dataset_id}`)).body).toMatchObject({ session_count: 1 });
  });

  it('refuses invalid parameters', async () => {
    const deep = `metadata={"a":${'['.repeat(4_500)}${']'.repeat(4_500)}}`;
    for (const query of [
      'limit=0',
      'limit=101',
      'offset=-1',
      'sort_by=size',
      'data_type=x',
      'metadata=[]',
      'id=1',
      deep,
    ]) {
      expect([query, (await ask('GET', `/datasets?${query}`)).status]).toEqual([query, 422]);
    }
    expect((await ask('GET', `/datasets?tag_value_id=x`)).status).toBe(422);
  });
});

it('counts the experiments of its own workspace only', async () => {
  const { id } = (await ask('POST', '/datasets', { name: randomUUID() })).body;
  const foreign = { name: randomUUID(), reference_dataset_id: id, start_time: '9999-01-01T00:00:00Z' };
  expect((await api.ask(acme.workspaceKeys[0], 'POST', '/sessions', foreign)).status).toBe(200);
  const expected = { session_count: 0, last_session_start_time: null };
  expect((await ask('GET', `/datasets/${id}`)).body).toMatchObject(expected);
});

describe('a dataset', () => {
  it('keeps its properties exactly', async () => {
    const text = `"' \\ \u{1f600} ${'x'.repeat(3000)}`;
    const schema = { type: 'object', properties: { b: { type: 'string' }, a: { const: '\u0000' } } };
    const metadata = { text, deep: { list: [1, null, '\ud800'] } };
    const body = {
      id: randomUUID(),
      name: randomUUID(),
      description: text,
      extra: { metadata },
      created_at: '2026-01-02',
    };
    const sent = { ...body, created_at: '2026-01-02T03:04:05Z', inputs_schema_definition: schema };
    const made = (await ask('POST', '/datasets', sent)).body;
    const expected = { description: text, metadata, inputs_schema_definition: schema, outputs_schema_definition: null };
    expect(made).toMatchObject({ ...expected, id: body.id, created_at: '2026-01-02T03:04:05.000000Z' });
    expect((await ask('GET', `/datasets/${body.id}`)).body).toEqual(made);
    const cleared = { description: null, inputs_schema_definition: null, metadata: null, name: null };
    const changed = (await ask('PATCH', `/datasets/${body.id}`, cleared)).body;
    expect(changed).toMatchObject({ ...cleared, name: body.name, outputs_schema_definition: null });
    expect((await ask('GET', `/datasets?metadata={"deep":{"list":[1]}}`)).body).toEqual([]);
  });

  it('refuses a taken name or id, and invalid fields', async () => {
    const first = (await ask('POST', '/datasets', { name: randomUUID() })).body;
    const second = (await ask('POST', '/datasets', { name: randomUUID() })).body;
    expect((await ask('POST', '/datasets', { name: randomUUID(), id: first.id })).status).toBe(409);
    expect((await ask('PATCH', `/datasets/${second.id}`, { name: first.name })).status).toBe(409);
    for (const body of [
      {},
      { name: '' },
      { name: 'a\u0000' },
      { name: 'x'.repeat(513) },
      { name: 'a', data_type: 'csv' },
    ]) {
      expect((await ask('POST', '/datasets', body)).status).toBe(422);
    }
    for (const inputs_schema_definition of [
      { type: 'strin' },
      { $ref: 'https://example.com/schema' },
      { $schema: { toString: 1 } },
      { $schema: [{ toString: 1 }] },
      { type: 'object', description: 'x'.repeat(300_000) },
    ]) {
      const { status, body } = await ask('POST', '/datasets', { name: randomUUID(), inputs_schema_definition });
      expect([status, body.detail[0].loc]).toEqual([422, ['body', 'inputs_schema_definition']]);
    }
    for (const method of ['GET', 'PATCH', 'DELETE'] as const) {
      const payload = method === 'PATCH' ? {} : undefined;
      expect((await ask(method, `/datasets/${randomUUID()}`, payload)).status).toBe(404);
      expect((await ask(method, '/datasets/1', payload)).status).toBe(422);
    }
  });

  it('needs the permission of each operation', async () => {
    const { id } = (await ask('POST', '/datasets', { name: randomUUID() })).body;
    const owner = { database: api.database, organizationId: acme.id, userId: acme.userId };
    const workspaceIds = [acme.workspaceIds[1]];
    const reader = await addKey({ ...owner, workspaceIds, permissions: ['datasets:read'] });
    expect((await api.ask(reader, 'GET', `/datasets/${id}`)).status).toBe(200);
    expect((await api.ask(reader, 'POST', '/datasets', { name: 'x' })).status).toBe(403);
    expect((await api.ask(reader, 'PATCH', `/datasets/${id}`, { name: 'x' })).status).toBe(403);
    expect((await api.ask(reader, 'DELETE', `/datasets/${id}`)).status).toBe(403);
    const writer = await addKey({ ...owner, workspaceIds, permissions: ['datasets:create', 'datasets:update'] });
    expect((await api.ask(writer, 'GET', '/datasets')).status).toBe(403);
    expect((await api.ask(writer, 'DELETE', `/datasets/${id}`)).status).toBe(403);
  });
});
