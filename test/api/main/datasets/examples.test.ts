import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { forSuite } from '../../../for-suite.ts';
import { addKey, addOrganization, startApi } from '../../start-api.ts';
import { createDataset, type ExamplePart, sendExampleParts } from './dataset-requests.ts';

const api = forSuite(() => startApi({ config: { maxRunBytes: 100_000, maxParts: 50 } }));
const acme = forSuite(() => addOrganization(api.database, 'acme'));

const ask = (method: 'GET' | 'POST' | 'PATCH' | 'PUT' | 'DELETE', url: string, payload?: object) =>
  api.ask(acme.workspaceKeys[1], method, url, payload);

const addDataset = (fields?: object) => createDataset(api, acme.workspaceKeys[1], fields);
const sendParts = (method: 'POST' | 'PATCH', datasetId: string, parts: readonly ExamplePart[]) =>
  sendExampleParts(api, { key: acme.workspaceKeys[1], method, datasetId }, parts);

describe('examples by JSON', () => {
  it('are created and changed alone and in bulk, each time as one version', async () => {
    const dataset_id = await addDataset();
    const one = (await ask('POST', '/examples', { dataset_id, inputs: { n: 0 }, split: ['a', 'a', 'b'] })).body;
    expect(one).toMatchObject({ dataset_id, inputs: { n: 0 }, outputs: null, metadata: { dataset_split: ['a', 'b'] } });
    const ids = [randomUUID(), randomUUID(), randomUUID()];
    const many = ids.map((id, n) => ({ id, dataset_id, inputs: { n }, created_at: `2026-01-0${n + 1}T00:00:00Z` }));
    const made = (await ask('POST', '/examples/bulk', many)).body;
    expect(made.map(({ id }: { id: string }) => id)).toEqual(ids);
    expect(made[2]).toMatchObject({ created_at: '2026-01-03T00:00:00.000000Z', metadata: { dataset_split: ['base'] } });
    expect((await ask('GET', `/datasets/${dataset_id}/versions`)).body).toHaveLength(2);

    const changed = await ask('PATCH', `/examples/${one.id}`, { outputs: { n: 1 }, metadata: { x: 1 } });
    expect(changed.body).toMatchObject({
      inputs: { n: 0 },
      outputs: { n: 1 },
      metadata: { x: 1, dataset_split: ['a', 'b'] },
    });
    const bulk = ids.map((id) => ({ id, dataset_id, inputs: { n: 9 }, split: 'c' }));
    expect((await ask('PATCH', '/examples/bulk', bulk)).body).toMatchObject({ count: 3 });
    const listed = (await ask('GET', `/examples?dataset=${dataset_id}&splits=c`)).body;
    expect(listed.map(({ inputs }: { inputs: object }) => inputs)).toEqual([{ n: 9 }, { n: 9 }, { n: 9 }]);
    const versions = (await ask('GET', `/datasets/${dataset_id}/versions?example=${ids[0]}`)).body;
    expect(versions).toEqual([
      { as_of: expect.any(String), tags: ['latest'] },
      { as_of: expect.any(String), tags: [] },
    ]);
    expect((await ask('GET', `/examples/${ids[0]}?as_of=${versions[1].as_of}`)).body.inputs).toEqual({ n: 0 });
    expect((await ask('GET', `/datasets/${dataset_id}/versions?limit=1&offset=3`)).body).toHaveLength(1);
    await ask('PUT', `/datasets/${dataset_id}/tags`, { as_of: versions[1].as_of, tag: '100%_Approved' });
    const search = async (text: string) =>
      (await ask('GET', `/datasets/${dataset_id}/versions?search=${encodeURIComponent(text)}`)).body.map(
        ({ tags }: { tags: string[] }) => tags,
      );
    expect(await search('%_APPR')).toEqual([['100%_Approved']]);
    expect(await search('LATEST')).toEqual([['latest']]);
    expect(await search('1%')).toEqual([]);
  });

  it('are ordered, selected and counted', async () => {
    const dataset_id = await addDataset();
    const many = Array.from({ length: 20 }, (_, n) => ({
      ...{ dataset_id, inputs: { text: `Number ${n}` }, created_at: new Date(Date.UTC(2026, 0, 1 + n)).toISOString() },
    }));
    await ask('POST', '/examples/bulk', many);
    const query = (more: string) => ask('GET', `/examples?dataset=${dataset_id}&${more}`);
    const days = async (more: string) =>
      (await query(more)).body.map((each: { created_at: string }) => Number(each.created_at.slice(8, 10)));
    expect(await days('order=recently_created&limit=3')).toEqual([20, 19, 18]);
    expect(await days('order=recently_created&descending=false&limit=3&offset=18')).toEqual([19, 20]);
    const shuffled = await days('order=random&random_seed=7');
    expect(shuffled).not.toEqual([...shuffled].sort((a, b) => a - b));
    expect(await days('order=random&random_seed=7&limit=10&offset=10')).toEqual(shuffled.slice(10));
    expect(await days('order=random&random_seed=8')).not.toEqual(shuffled);
    expect((await query('limit=1&select=id&select=inputs')).body).toEqual([
      {
        ...{ id: expect.any(String), name: expect.any(String), dataset_id },
        created_at: expect.any(String),
        modified_at: expect.any(String),
        inputs: expect.any(Object),
      },
    ]);
    const [first] = (await query('limit=1')).body;
    expect((await query('limit=1&exclude_default_fields=true&select=outputs&select=name')).body).toEqual([
      { id: first.id, name: first.name, outputs: null },
    ]);
    expect((await query('limit=1&exclude_default_fields=true&select=id')).body).toEqual([{ id: first.id }]);
    expect((await query('limit=1&exclude_default_fields=true')).body).toEqual([first]);
    expect((await query('exclude_default_fields=maybe')).status).toBe(422);
    expect((await query('full_text_contains=number%201&full_text_contains=1%22')).body).toHaveLength(2);
    const count = async (more: string) => (await ask('GET', `/examples/count?dataset=${dataset_id}${more}`)).body;
    expect([
      await count(''),
      await count('&splits=base'),
      await count('&splits=x'),
      await count('&as_of=2020-01-01'),
    ]).toEqual([20, 20, 0, 0]);
  });

  it('refuse bad input without making a version', async () => {
    const dataset_id = await addDataset();
    const { id } = (await ask('POST', '/examples', { dataset_id, inputs: {} })).body;
    const other = await addDataset();
    const cases: [string, string, object | undefined, number][] = [
      ['POST', '/examples', { dataset_id }, 422],
      ['POST', '/examples', { dataset_id, inputs: [] }, 422],
      ['POST', '/examples', { inputs: {} }, 422],
      ['POST', '/examples', { dataset_id: randomUUID(), inputs: {} }, 404],
      ['POST', '/examples', { dataset_id, id, inputs: { n: 0 } }, 409],
      ['POST', '/examples', { dataset_id: other, id, inputs: {} }, 409],
      ['POST', '/examples', { dataset_id, inputs: { text: 'x'.repeat(100_001) } }, 413],
      ['POST', '/examples', { dataset_id, inputs: {}, use_source_run_io: true }, 422],
      ['POST', '/examples', { dataset_id, inputs: {}, source_run_id: id, use_source_run_io: true }, 422],
      ['POST', '/examples', { dataset_id, inputs: {}, source_run_id: id, use_source_run_attachments: ['a'] }, 422],
      ['POST', '/examples/bulk', [], 422],
      [
        'POST',
        '/examples/bulk',
        [
          { dataset_id, inputs: {} },
          { dataset_id: other, inputs: {} },
        ],
        400,
      ],
      [
        'POST',
        '/examples/bulk',
        [
          { dataset_id, id: other, inputs: {} },
          { dataset_id, id: other, inputs: {} },
        ],
        422,
      ],
      ['PATCH', `/examples/${randomUUID()}`, { inputs: {} }, 404],
      ['PATCH', `/examples/${id}`, { dataset_id: other }, 409],
      ['PATCH', `/examples/${id}`, { dataset_id: randomUUID() }, 404],
      ['PATCH', `/examples/${id}`, { split: '' }, 422],
      ['PATCH', `/examples/${id}`, { attachments_operations: { retain: ['x'] } }, 422],
      ['PATCH', '/examples/bulk', [{ id: other, dataset_id }], 404],
      ['DELETE', `/examples/${randomUUID()}`, undefined, 404],
      ['DELETE', `/examples?example_ids=${id}&example_ids=${randomUUID()}`, undefined, 404],
      ['DELETE', '/examples?example_ids=1', undefined, 422],
      ['POST', '/v1/platform/datasets/examples/delete', { example_ids: [id, other], hard_delete: true }, 404],
      ['POST', '/v1/platform/datasets/examples/delete', { example_ids: [1] }, 422],
      ['GET', '/examples', undefined, 400],
      ['GET', `/examples?dataset=${randomUUID()}`, undefined, 404],
      ['GET', `/examples?dataset=${dataset_id}&as_of=unknown`, undefined, 404],
      ['GET', `/examples?dataset=${dataset_id}&limit=101`, undefined, 422],
      ['GET', `/examples?dataset=${dataset_id}&order=size`, undefined, 422],
      ['GET', `/examples?dataset=${dataset_id}&filter=x`, undefined, 400],
      ['GET', `/examples/${id}?as_of=2020-01-01T00:00:00Z`, undefined, 404],
      ['GET', `/examples/${id}?dataset=${other}`, undefined, 404],
      ['PUT', `/datasets/${dataset_id}/tags`, { as_of: 'latest', tag: 'latest' }, 400],
      ['PUT', `/datasets/${dataset_id}/tags`, { as_of: 'latest', tag: '2026-01-01' }, 400],
      ['PUT', `/datasets/${dataset_id}/tags`, { as_of: '2020-01-01', tag: 'x' }, 404],
      ['PUT', `/datasets/${dataset_id}/splits`, { split_name: 'x', examples: [randomUUID()] }, 404],
      ['GET', `/datasets/${dataset_id}/version`, undefined, 400],
      ['GET', `/datasets/${dataset_id}/versions/diff?from_version=latest`, undefined, 422],
    ];
    for (const [method, url, payload, status] of cases) {
      const answer = await ask(method as 'GET', url, payload);
      expect([method, url, payload, answer.status, answer.body]).toEqual([
        method,
        url,
        payload,
        status,
        expect.anything(),
      ]);
    }
    expect((await ask('GET', `/datasets/${dataset_id}/versions`)).body).toHaveLength(1);
    expect((await ask('GET', `/datasets/${other}/versions`)).body).toEqual([]);
  });
});

describe('examples by multipart', () => {
  it('keep their JSON byte for byte', async () => {
    const datasetId = await addDataset();
    const id = randomUUID();
    const json = '{"big":12345678901234567890, "z":1.50,"a":"\\ud83d\\u0000", "dup":1,"dup":2}';
    const made = await sendParts('POST', datasetId, [
      [id, '{}'],
      [`${id}.inputs`, ` ${json} `],
      [`${id}.outputs`, json],
    ]);
    expect(made).toMatchObject({ status: 201, body: { count: 1, example_ids: [id], as_of: expect.any(String) } });
    const headers = { 'x-api-key': acme.workspaceKeys[1] };
    const { body } = await api.server.inject({ url: `/examples?dataset=${datasetId}`, headers });
    expect(body).toContain(`"inputs":${json},"outputs":${json}`);
    expect((await api.server.inject({ url: `/examples/${id}`, headers })).body).toContain(`"inputs":${json}`);
  });

  it('refuse bad input, all or none', async () => {
    const datasetId = await addDataset();
    const id = randomUUID();
    const good: ExamplePart[] = [
      [randomUUID(), '{}'],
      [`${id}.inputs`, '{}'],
    ];
    const main = (body: string): ExamplePart[] => [
      [id, body],
      [`${id}.inputs`, '{}'],
    ];
    const cases: [readonly ExamplePart[], number][] = [
      [good, 422],
      [main(JSON.stringify({ source_run_id: id, use_source_run_attachments: Array(150).fill('a'.repeat(500)) })), 422],
      [[[id, '{}']], 422],
      [
        [
          [id, '[]'],
          [`${id}.inputs`, '{}'],
        ],
        422,
      ],
      [
        [
          [id, '{}'],
          [`${id}.inputs`, '{"a":}'],
        ],
        422,
      ],
      [
        [
          [id, '{}'],
          [`${id}.inputs`, '7'],
        ],
        422,
      ],
      [
        [
          [id, '{}'],
          [`${id}.inputs`, `${'{"a":'.repeat(1_100)}1${'}'.repeat(1_100)}`],
        ],
        422,
      ],
      [
        [
          [id, '{}'],
          [`${id}.inputs`, '{}'],
          [`${id}.other`, '{}'],
        ],
        422,
      ],
      [[['x', '{}']], 422],
      [
        [
          [id, '{}'],
          [`${id}.inputs`, '{}'],
          [`${id}.attachment.`, 'x', 'text/plain'],
        ],
        422,
      ],
      [
        [
          [id, '{}'],
          [`${id}.inputs`, '{}'],
          [`${id}.attachment.a`, 'x'.repeat(100_001), 'text/plain'],
        ],
        413,
      ],
      [main('{"split":1}'), 422],
      [main('{"metadata":[]}'), 422],
      [main('{"created_at":"yesterday"}'), 422],
      [main('{"source_run_id":"x"}'), 422],
      [Array.from({ length: 51 }, () => [randomUUID(), '{}']), 413],
    ];
    for (const [parts, status] of cases) {
      const answer = await sendParts('POST', datasetId, parts);
      expect([parts, answer]).toEqual([
        parts,
        { status, body: expect.objectContaining({ error: expect.any(String) }) },
      ]);
    }
    expect((await sendParts('POST', randomUUID(), main('{}'))).status).toBe(404);
    expect((await sendParts('PATCH', datasetId, main('{}'))).status).toBe(404);
    expect((await ask('GET', `/datasets/${datasetId}`)).body).toMatchObject({ example_count: 0 });
    expect((await sendParts('POST', datasetId, main('{"split":null,"new_field":1}'))).status).toBe(201);
    expect((await sendParts('PATCH', await addDataset(), main('{}'))).status).toBe(409);
  });
});

describe('a schema', () => {
  const schema = {
    type: 'object',
    required: ['question'],
    properties: {
      question: { type: 'string', pattern: '^(a+)+$' },
      deep: { type: 'array', items: { type: 'integer' } },
    },
  };

  it('refuses examples that do not match, with the example and the path', async () => {
    const dataset_id = await addDataset({ inputs_schema_definition: schema, outputs_schema_definition: schema });
    const [id, other] = [randomUUID(), randomUUID()];
    const create = (inputs: object, outputs?: object) =>
      ask('POST', '/examples/bulk', [
        { id: other, dataset_id, inputs: { question: 'a' } },
        { id, dataset_id, inputs, outputs },
      ]);
    const message = async (answer: ReturnType<typeof create>) => (await answer).body.detail[0].msg;
    expect(await message(create({}))).toBe(`Example ${id}: inputs must have required property 'question'.`);
    expect(await message(create({ question: 'a', deep: [1, 'x'] }))).toBe(
      `Example ${id}: inputs/deep/1 must be integer.`,
    );
    expect(await message(create({ question: 'a' }, {}))).toContain(`Example ${id}: outputs must have`);
    expect((await ask('GET', `/datasets/${dataset_id}`)).body.example_count).toBe(0);
    expect((await create({ question: 'a' }, { question: 'a' })).status).toBe(200);
    expect((await ask('PATCH', `/examples/${id}`, { inputs: { question: 1 } })).status).toBe(422);
    const parts = await sendParts('PATCH', dataset_id, [
      [id, '{}'],
      [`${id}.outputs`, '{"question":"b"}'],
    ]);
    expect(parts).toMatchObject({
      status: 422,
      body: { error: expect.stringContaining(`Example ${id}: outputs/question`) },
    });
  });

  it('cannot block the server with an expensive pattern', async () => {
    const dataset_id = await addDataset({ inputs_schema_definition: schema });
    const inputs = { question: `${'a'.repeat(50)}b` };
    const began = performance.now();
    let turns = 0;
    const timer = setInterval(() => turns++, 10);
    const { status, body } = await ask('POST', '/examples', { dataset_id, inputs });
    clearInterval(timer);
    expect([status, body.detail[0].msg]).toEqual([
      422,
      expect.stringContaining(': inputs cannot be validated: it takes longer than'),
    ]);
    expect(turns).toBeGreaterThan((performance.now() - began) / 100);
  });

  it('cannot delay the validation of another organisation for long', async () => {
    const dataset_id = await addDataset({ inputs_schema_definition: schema });
    const other = (await addOrganization(api.database, 'patient')).workspaceKeys[0];
    const otherId = await createDataset(api, other, { inputs_schema_definition: schema });
    const inputs = { question: `${'a'.repeat(50)}b` };
    let answered = 0;
    const slow = [1, 2, 3].map(() => ask('POST', '/examples', { dataset_id, inputs }).then(() => answered++));
    const quick = await api.ask(other, 'POST', '/examples', { dataset_id: otherId, inputs: { question: 'aa' } });
    expect([quick.status, answered]).toEqual([200, expect.toSatisfy((count: number) => count < 3)]);
    await Promise.all(slow);
  });

  it('cannot block the server with many values that each take long', async () => {
    const uniqueItems = { type: 'object', properties: { list: { type: 'array', uniqueItems: true } } };
    const dataset_id = await addDataset({ inputs_schema_definition: uniqueItems });
    const list = Array.from({ length: 5_000 }, (_, number) => [number]);
    const examples = Array.from({ length: 15 }, () => ({ dataset_id, inputs: { list } }));
    const { status, body } = await ask('POST', '/examples/bulk', examples);
    expect([status, body.detail[0].msg]).toEqual([422, expect.stringContaining(': inputs cannot be validated: ')]);
    expect((await ask('GET', `/examples?dataset=${dataset_id}`)).body).toEqual([]);
  });
});

describe('permissions', () => {
  it('separate reading, changing and deleting for ever; data of runs needs access to runs', async () => {
    const dataset_id = await addDataset();
    const { id } = (await ask('POST', '/examples', { dataset_id, inputs: {} })).body;
    const owner = { database: api.database, organizationId: acme.id, userId: acme.userId };
    const key = (permissions: string[]) => addKey({ ...owner, workspaceIds: [acme.workspaceIds[1]], permissions });
    const reader = await key(['datasets:read']);
    expect((await api.ask(reader, 'GET', `/examples/${id}`)).status).toBe(200);
    expect((await api.ask(reader, 'PATCH', `/examples/${id}`, {})).status).toBe(403);
    const writer = await key(['datasets:update']);
    expect((await api.ask(writer, 'GET', `/examples/${id}`)).status).toBe(403);
    expect((await api.ask(writer, 'POST', '/v1/platform/datasets/examples/delete', { example_ids: [id] })).status).toBe(
      403,
    );
    const source = { dataset_id, inputs: {}, source_run_id: id };
    const createFromRun = (more: object) => api.ask(writer, 'POST', '/examples', { ...source, ...more });
    expect((await createFromRun({ use_source_run_io: true })).status).toBe(403);
    expect((await createFromRun({ use_source_run_attachments: ['a'] })).status).toBe(403);
    expect((await createFromRun({})).status).toBe(200);
    for (const method of ['POST', 'PATCH'] as const) {
      const part = (name: string, json: object) =>
        `--cut\r\nContent-Disposition: form-data; name="${name}"\r\n\r\n${JSON.stringify(json)}\r\n`;
      const exampleId = method === 'PATCH' ? id : randomUUID();
      const { statusCode } = await api.server.inject({
        method,
        url: `/v1/platform/datasets/${dataset_id}/examples`,
        headers: { 'x-api-key': writer, 'content-type': 'multipart/form-data; boundary=cut' },
        payload: `${part(exampleId, { source_run_id: id, use_source_run_attachments: ['a'] })}${part(`${exampleId}.inputs`, {})}--cut--\r\n`,
      });
      expect([method, statusCode]).toEqual([method, 403]);
    }
  });
});
