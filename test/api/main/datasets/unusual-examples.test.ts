/** Names, times and schemas that are valid, but have a meaning of their own in JavaScript or in a library. */

import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import { forSuite } from '../../../for-suite.ts';
import { addOrganization, startApi } from '../../start-api.ts';
import { createDataset, type ExamplePart, sendExampleParts } from './dataset-requests.ts';

const api = forSuite(() => startApi());
const acme = forSuite(() => addOrganization(api.database, 'acme'));

const ask = (method: 'GET' | 'POST' | 'PATCH', url: string, payload?: object) =>
  api.ask(acme.workspaceKeys[0], method, url, payload);

const addDataset = (fields?: object) => createDataset(api, acme.workspaceKeys[0], fields);
const sendParts = (method: 'POST' | 'PATCH', datasetId: string, parts: readonly ExamplePart[]) =>
  sendExampleParts(api, { key: acme.workspaceKeys[0], method, datasetId }, parts);

it('a schema with $async is enforced like any other', async () => {
  const schema = { $async: true, type: 'object', required: ['question'] };
  const dataset_id = await addDataset({ inputs_schema_definition: schema });
  const refused = await ask('POST', '/examples', { dataset_id, inputs: {} });
  expect([refused.status, JSON.stringify(refused.body)]).toEqual([422, expect.stringContaining('question')]);
  expect((await ask('POST', '/examples', { dataset_id, inputs: { question: 'why' } })).status).toBe(200);
});

it.each(['__proto__', 'constructor', 'toString'])('an attachment can be renamed to %s and back', async (name) => {
  const datasetId = await addDataset();
  const id = randomUUID();
  const made = await sendParts('POST', datasetId, [
    [id, '{}'],
    [`${id}.inputs`, '{}'],
    [`${id}.attachment.one`, 'content', 'text/plain'],
  ]);
  expect(made.status).toBe(201);
  const rename = async (from: string, to: string) => {
    const operations = `{"rename":{${JSON.stringify(from)}:${JSON.stringify(to)}}}`;
    const changed = await sendParts('PATCH', datasetId, [
      [id, '{}'],
      [`${id}.attachments_operations`, operations],
    ]);
    expect(changed.status).toBe(201);
    const { body } = await ask('GET', `/examples?dataset=${datasetId}&select=attachment_urls`);
    return Object.keys(body[0].attachment_urls ?? {});
  };
  expect(await rename('one', name)).toEqual([`attachment.${name}`]);
  expect(await rename(name, 'two')).toEqual(['attachment.two']);
});

it.each([
  ['2026-01-01T00:00:00+23:59', '2025-12-31T00:01:00.000000Z'],
  ['2026-01-01T00:00:00,5Z', '2026-01-01T00:00:00.500000Z'],
])('the time %s is stored', async (sent, stored) => {
  const datasetId = await addDataset();
  const id = randomUUID();
  const made = await sendParts('POST', datasetId, [
    [id, JSON.stringify({ created_at: sent })],
    [`${id}.inputs`, '{}'],
  ]);
  expect(made).toMatchObject({ status: 201 });
  expect((await ask('GET', `/examples/${id}`)).body.created_at).toBe(stored);
});

it('the id of a source run may have no hyphens', async () => {
  const [runId, datasetId, id] = [randomUUID(), await addDataset(), randomUUID()];
  const run = { id: runId, name: 'run', run_type: 'chain', start_time: new Date().toISOString(), inputs: { n: 1 } };
  expect((await ask('POST', '/runs', run)).status).toBe(202);
  await api.settled();
  const main = { source_run_id: runId.replaceAll('-', ''), use_source_run_io: true };
  const made = await sendParts('POST', datasetId, [[id, JSON.stringify(main)]]);
  expect(made).toMatchObject({ status: 201 });
  expect((await ask('GET', `/examples/${id}`)).body).toMatchObject({ source_run_id: runId, inputs: { n: 1 } });
});

it('a run that is nested deeper than examples may be is not copied', async () => {
  const [runId, dataset_id] = [randomUUID(), await addDataset()];
  const nest = (levels: number) => JSON.parse(`${'['.repeat(levels)}${']'.repeat(levels)}`) as unknown;
  const run = { id: runId, name: 'run', run_type: 'chain', start_time: new Date().toISOString() };
  expect((await ask('POST', '/runs', { ...run, inputs: { messages: nest(1_000) } })).status).toBe(202);
  await api.settled();
  const copied = await ask('POST', '/examples', { dataset_id, source_run_id: runId, use_source_run_io: true });
  expect([copied.status, copied.body.code]).toEqual([422, 'TOO_DEEP']);
});

it('an attachment cannot be renamed to half of a surrogate pair, which would be stored as another name', async () => {
  const [datasetId, id] = [await addDataset(), randomUUID()];
  const made = await sendParts('POST', datasetId, [
    [id, '{}'],
    [`${id}.inputs`, '{}'],
    [`${id}.attachment.one`, '1', 'text/plain'],
    [`${id}.attachment.two`, '2', 'text/plain'],
  ]);
  expect(made.status).toBe(201);
  const rename = { one: '\ud800', two: '\ud801' };
  expect(await ask('PATCH', `/examples/${id}`, { attachments_operations: { rename } })).toMatchObject({
    status: 422,
    body: { code: 'INVALID_EXAMPLE' },
  });
});

it('deletions of the same example at the same time all succeed', async () => {
  const [datasetId, id] = [await addDataset(), randomUUID()];
  expect((await ask('POST', '/examples', { id, dataset_id: datasetId, inputs: {} })).status).toBe(200);
  const remove = () => api.ask(acme.workspaceKeys[0], 'DELETE', `/v1/platform/datasets/${datasetId}/examples/${id}`);
  const answers = await Promise.all(Array.from({ length: 5 }, remove));
  expect(answers.map(({ status }) => status)).toEqual(Array(5).fill(204));
  expect((await ask('GET', `/datasets/${datasetId}`)).body.example_count).toBe(0);
});

it('metadata of a new dataset that is not an object is ignored, because clients cannot read it', async () => {
  const id = await addDataset({ extra: { metadata: [1] } });
  const list = async () => (await ask('GET', `/datasets?id=${id}`)).body;
  expect(await list()).toMatchObject([{ metadata: null }]);
  await api.database.execute(`UPDATE datasets SET metadata = '[1]', searchable = '[1]' WHERE id = $1`, [id]);
  expect(await list()).toMatchObject([{ metadata: null }]);
});

it('an attachment of a run whose id is that of a stored attachment of an example does not replace it', async () => {
  const [datasetId, id, copyId] = [await addDataset(), randomUUID(), await addDataset()];
  const parts: ExamplePart[] = [
    [id, '{}'],
    [`${id}.inputs`, '{}'],
    [`${id}.attachment.file`, 'stored', 'text/plain'],
  ];
  expect((await sendParts('POST', datasetId, parts)).status).toBe(201);
  const ids = { source_dataset_id: datasetId, target_dataset_id: copyId };
  expect((await ask('POST', '/datasets/clone', ids)).status).toBe(200);
  const sets = await api.database.query<{ set: string }>(
    `SELECT attachments -> 'file' ->> 'set' AS set FROM examples WHERE dataset_id = ANY ($1)`,
    [[datasetId, copyId]],
  );
  const form = new FormData();
  const start = new Date().toISOString();
  for (const { set } of sets) {
    const order = `${start.replace(/[-:.]/g, '').replace('Z', '000Z')}${set}`;
    const run = { id: set, trace_id: set, dotted_order: order, name: 'run', run_type: 'chain', start_time: start };
    form.set(`post.${set}`, new Blob([JSON.stringify(run)], { type: 'application/json' }));
    form.set(`attachment.${set}.file`, new Blob(['forged'], { type: 'text/plain' }));
  }
  const multipart = new Response(form);
  const headers = {
    'x-api-key': acme.workspaceKeys[0],
    'content-type': multipart.headers.get('content-type') ?? '',
  };
  const payload = Buffer.from(await multipart.arrayBuffer());
  expect((await api.server.inject({ method: 'POST', url: '/runs/multipart', headers, payload })).statusCode).toBe(202);
  await api.settled();
  for (const dataset of [datasetId, copyId]) {
    const { body } = await ask('GET', `/examples?dataset=${dataset}&select=attachment_urls`);
    const url = new URL(body[0].attachment_urls['attachment.file'].presigned_url, 'http://runlake');
    expect((await api.server.inject({ url: url.pathname })).body).toBe('stored');
  }
});

it('parts whose JSON is parsed have at most a million values together', async () => {
  const [datasetId, ids] = [await addDataset(), [randomUUID(), randomUUID()]];
  const list = (values: number) => `[${Array(values).fill('0').join()}]`;
  const sent = (values: number): ExamplePart[] =>
    ids.flatMap((id): ExamplePart[] => [
      [id, `{"unknown":${list(values)}}`],
      [`${id}.inputs`, '{}'],
    ]);
  const refused = await sendParts('POST', datasetId, sent(600_000));
  expect([refused.status, refused.body.code]).toEqual([413, 'TOO_MANY_PARTS']);
  expect((await sendParts('POST', datasetId, sent(400_000))).status).toBe(201);
  const change = ids.flatMap((id): ExamplePart[] => [
    [id, '{}'],
    [`${id}.attachments_operations`, `{"unknown":${list(600_000)}}`],
  ]);
  const unchanged = await sendParts('PATCH', datasetId, change);
  expect([unchanged.status, unchanged.body.code]).toEqual([413, 'TOO_MANY_PARTS']);
});
