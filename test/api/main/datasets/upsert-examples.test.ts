import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { forSuite } from '../../../for-suite.ts';
import { addKey, addOrganization, askAs, startApi } from '../../start-api.ts';
import { createDataset, type ExamplePart, sendExampleParts } from './dataset-requests.ts';

/** `POST /v1/platform/examples/multipart`, which creates and changes examples; older Python SDKs call it. */

const api = forSuite(() => startApi({ config: { maxRunBytes: 100_000, maxParts: 50 } }));
const acme = forSuite(() => addOrganization(api.database, 'acme'));

const ask = askAs(api, acme);

const addDataset = (fields?: object) => createDataset(api, acme.adminKey, fields);

const upsert = (parts: readonly ExamplePart[], key = acme.adminKey) => sendExampleParts(api, { key }, parts);

const example = (id: string, dataset_id: string, inputs: unknown, more: object = {}): ExamplePart[] => [
  [id, { dataset_id, created_at: '2026-01-01T00:00:00Z', ...more }],
  [`${id}.inputs`, inputs],
];

const versions = async (datasetId: string) => (await ask('GET', `/datasets/${datasetId}/versions`)).body.length;
const read = async (id: string) => (await ask('GET', `/examples/${id}`)).body;

describe('upserting examples by multipart', () => {
  it('creates the new ones and changes the others, as one version', async () => {
    const dataset = await addDataset();
    const [first, second] = [randomUUID(), randomUUID()];
    const made = await upsert([
      ...example(first, dataset, { n: 1 }, { metadata: { a: 1 }, split: 'train' }),
      [`${first}.outputs`, { m: 1 }],
      [`${first}.attachment.note`, 'hi', 'text/plain'],
    ]);
    expect(made).toMatchObject({ status: 201, body: { count: 1, example_ids: [first], as_of: expect.any(String) } });
    const both = await upsert([
      ...example(second, dataset.toUpperCase(), { n: 2 }),
      ...example(first, dataset, { n: 10 }, { created_at: '2026-02-02T00:00:00Z' }),
      [`${second}.attachment.more`, 'ho', 'text/plain'],
    ]);
    expect(both).toMatchObject({ status: 201, body: { count: 2, example_ids: [second, first] } });
    expect(await read(first)).toMatchObject({
      dataset_id: dataset,
      inputs: { n: 10 },
      outputs: { m: 1 },
      metadata: { a: 1, dataset_split: ['train'] },
      created_at: expect.stringContaining('2026-01-01'),
      modified_at: both.body.as_of,
      attachment_urls: { 'attachment.note': { mime_type: 'text/plain' } },
    });
    expect(await read(second)).toMatchObject({
      inputs: { n: 2 },
      outputs: null,
      metadata: { dataset_split: ['base'] },
      attachment_urls: { 'attachment.more': { mime_type: 'text/plain' } },
    });
    expect(await versions(dataset)).toBe(2);
    expect((await ask('GET', `/datasets/${dataset}`)).body.example_count).toBe(2);
    expect((await ask('GET', `/examples/${first}?as_of=${made.body.as_of}`)).body.inputs).toEqual({ n: 1 });
  });

  it('creates an example that was deleted', async () => {
    const dataset = await addDataset();
    const id = randomUUID();
    await upsert(example(id, dataset, { n: 1 }));
    expect((await ask('DELETE', `/examples/${id}`)).status).toBe(200);
    expect((await upsert(example(id, dataset, { n: 2 }))).status).toBe(201);
    expect((await ask('GET', `/datasets/${dataset}`)).body.example_count).toBe(1);
  });

  it('changes only attachments, or renames and retains them', async () => {
    const dataset = await addDataset();
    const id = randomUUID();
    await upsert([...example(id, dataset, {}), [`${id}.attachment.a`, 'a', 'text/plain']]);
    const names = async () => Object.keys((await read(id)).attachment_urls).sort();
    const change = (...parts: ExamplePart[]) => upsert([[id, { dataset_id: dataset }], ...parts]);
    expect((await change([`${id}.attachments_operations`, { rename: { a: 'b' } }])).status).toBe(201);
    expect(await names()).toEqual(['attachment.b']);
    expect((await change([`${id}.attachment.c`, 'c', 'text/plain'])).status).toBe(201);
    expect(await names()).toEqual(['attachment.c']);
  });

  it('stores all or none', async () => {
    const dataset = await addDataset({
      inputs_schema_definition: { type: 'object', properties: { n: { type: 'number' } } },
    });
    const [known, elsewhere, other] = [randomUUID(), randomUUID(), await addDataset()];
    await upsert(example(known, dataset, { n: 1 }));
    await upsert(example(elsewhere, other, {}));
    const fresh = () => randomUUID();
    const cases: [string, ExamplePart[], number][] = [
      ['no dataset', [[fresh(), {}]], 422],
      ['one without dataset', [...example(fresh(), dataset, {}), [fresh(), {}]], 422],
      ['a bad dataset id', [[fresh(), { dataset_id: 'x' }]], 422],
      ['an unknown dataset', example(fresh(), fresh(), {}), 404],
      ['two datasets', [...example(fresh(), dataset, {}), ...example(fresh(), other, {})], 400],
      ['no example', [], 400],
      ['a new example without inputs', [[fresh(), { dataset_id: dataset }]], 422],
      [
        'inputs that do not match',
        [...example(known, dataset, { n: 2 }), ...example(fresh(), dataset, { n: 'x' })],
        422,
      ],
      [
        'an example of another dataset',
        [...example(known, dataset, { n: 2 }), ...example(elsewhere, dataset, {})],
        409,
      ],
      ['inputs that are too large', example(known, dataset, { text: 'x'.repeat(100_000) }), 413],
      ['too many parts', Array.from({ length: 26 }, () => example(fresh(), dataset, {})).flat(), 413],
      [
        'an attachment that does not exist',
        [
          [known, { dataset_id: dataset }],
          [`${known}.attachments_operations`, { retain: ['a'] }],
        ],
        422,
      ],
      ['an unknown run', [[known, { dataset_id: dataset, use_source_run_io: true, source_run_id: fresh() }]], 422],
      ['an unknown part', [...example(known, dataset, {}), [`${known}.extra`, {}]], 422],
    ];
    for (const [what, parts, status] of cases) {
      expect([what, (await upsert(parts)).status]).toEqual([what, status]);
    }
    expect(await versions(dataset)).toBe(1);
    expect(await read(known)).toMatchObject({ inputs: { n: 1 } });
  });

  it('takes inputs from a run, with the permission to read runs', async () => {
    const dataset = await addDataset();
    const [run, id] = [randomUUID(), randomUUID()];
    const members = { id: run, name: 'r', run_type: 'chain', inputs: { q: 1 }, start_time: new Date().toISOString() };
    expect((await ask('POST', '/runs', members)).status).toBe(202);
    await api.settled();
    const parts: ExamplePart[] = [[id, { dataset_id: dataset, source_run_id: run, use_source_run_io: true }]];
    expect((await upsert(parts)).status).toBe(201);
    expect(await read(id)).toMatchObject({ inputs: { q: 1 }, source_run_id: run });
    expect(
      (
        await upsert([
          [id, { dataset_id: dataset }],
          [`${id}.inputs`, { q: 2 }],
        ])
      ).status,
    ).toBe(201);
    expect((await upsert(parts)).status).toBe(201);
    expect(await read(id)).toMatchObject({ inputs: { q: 1 } });
    const owner = { database: api.database, organizationId: acme.id, userId: acme.userId };
    const writer = await addKey({ ...owner, workspaceIds: [acme.workspaceIds[0]], permissions: ['datasets:update'] });
    expect((await upsert(parts, writer)).status).toBe(403);
    expect((await upsert(example(id, dataset, {}), writer)).status).toBe(201);
    expect((await upsert(parts, acme.workspaceKeys[1])).status).toBe(404);
    expect((await upsert(example(id, dataset, {}), acme.workspaceKeys[1])).status).toBe(404);
  });

  it('creates an example once if requests are concurrent', async () => {
    const dataset = await addDataset();
    const id = randomUUID();
    const answers = await Promise.all([1, 2, 3, 4].map((n) => upsert(example(id, dataset, { n }))));
    expect(answers.map(({ status }) => status)).toEqual([201, 201, 201, 201]);
    expect((await ask('GET', `/datasets/${dataset}`)).body.example_count).toBe(1);
    expect(await versions(dataset)).toBe(4);
  });
});
