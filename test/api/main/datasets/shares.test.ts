import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { forSuite } from '../../../for-suite.ts';
import { openClient } from '../../open-client.ts';
import { addOrganization, startApi } from '../../start-api.ts';

/** Datasets that are copied, or shared by a token. */

const api = forSuite(() => startApi());
const acme = forSuite(() => addOrganization(api.database, 'acme'));

const client = forSuite(() =>
  openClient(api, acme.adminKey, { autoBatchTracing: false, callerOptions: { maxRetries: 0 } }),
);

// biome-ignore lint/suspicious/noExplicitAny: each operation has its own response type.
type Body = any;
type Method = 'GET' | 'POST' | 'PUT' | 'DELETE';
const ask = (method: Method, url: string, payload?: object): Promise<{ status: number; body: Body }> =>
  api.ask(acme.adminKey, method, url, payload);

/** Sends a request without a key. */
async function read(path: string) {
  const answer = await api.server.inject({ method: 'GET', url: path });
  return {
    status: answer.statusCode,
    text: answer.body,
    headers: answer.headers,
    body: JSON.parse(answer.body) as Body,
  };
}

/** Follows a link without a key, and returns the status and the text. */
async function readLink(url: string) {
  const { statusCode, body } = await api.server.inject({ method: 'GET', url: new URL(url).pathname });
  return [statusCode, body];
}

async function addDataset(word = 'open') {
  const dataset = await client.createDataset(`${word} ${randomUUID()}`, { description: word });
  const note = ['text/plain', new TextEncoder().encode(`note of ${word}`)] as ['text/plain', Uint8Array<ArrayBuffer>];
  for (const n of [1, 2]) {
    const example = { dataset_id: dataset.id, inputs: { n, word }, outputs: { n }, split: `split ${n}` };
    await client.createExample({ ...example, metadata: { n }, ...(n === 1 && { attachments: { note } }) });
  }
  return dataset.id;
}

const publicReads = (token: string) =>
  ['datasets', 'examples', 'examples/count', 'datasets/sessions'].map((path) => `/public/${token}/${path}`);

describe('sharing', () => {
  it('is begun, read and ended by the stock SDK, and read by a client without a key', async () => {
    const id = await addDataset();
    const stranger = await openClient(api, 'none');
    const { share_token: token = '' } = await client.shareDataset(id);
    expect((await client.shareDataset(id)).share_token).toBe(token);
    expect((await client.readDatasetSharedSchema(id)).share_token).toBe(token);
    expect(await stranger.readSharedDataset(token)).toMatchObject({ id, description: 'open', example_count: 2 });
    const examples = await stranger.listSharedExamples(token);
    expect(examples.map(({ inputs }) => inputs.n)).toEqual([2, 1]);
    const [{ id: exampleId = '' } = {}] = examples;
    expect(await stranger.listSharedExamples(token, { exampleIds: [exampleId] })).toHaveLength(1);
    const copy = `copy ${randomUUID()}`;
    await client.clonePublicDataset(token, { datasetName: copy });
    expect(await client.readDataset({ datasetName: copy })).toMatchObject({ description: 'open', example_count: 2 });
    await client.unshareDataset(id);
    await expect(stranger.readSharedDataset(token)).rejects.toThrow(/404/);
    expect((await ask('GET', `/datasets/${id}/share`)).body).toBeNull();
    expect((await client.shareDataset(id)).share_token).not.toBe(token);
  });

  it('gives access to the versions and fields of the dataset, and to nothing else of the workspace', async () => {
    const [id, secret] = [await addDataset(), await addDataset('secret')];
    const { as_of } = await client.readDatasetVersion({ datasetId: id, tag: 'latest' });
    await client.createExample({ dataset_id: id, inputs: { n: 3 } });
    const [hidden] = (await ask('GET', `/examples?dataset=${secret}`)).body;
    const project = { name: `secret ${randomUUID()}`, description: 'secret', reference_dataset_id: secret };
    await ask('POST', '/sessions', project);
    await ask('POST', '/sessions', { name: `on ${randomUUID()}`, description: 'secret', reference_dataset_id: id });
    const { share_token: token } = await client.shareDataset(id);

    for (const path of publicReads(token)) {
      const { status, headers, text } = await read(path);
      expect([path, status, headers['cache-control']]).toEqual([path, 200, 'no-store']);
      expect(text).not.toMatch(/secret|tenant_id|source_run_id|session_count/);
    }
    const examples = `/public/${token}/examples`;
    const numbers = async (query: string) => {
      const { body } = await read(`${examples}?${query}`);
      return body.map(({ inputs }: Body) => inputs.n).join();
    };
    expect(await numbers('limit=2&offset=1')).toBe('2,1');
    expect(await numbers(`as_of=${as_of}`)).toBe('2,1');
    expect(await numbers(`metadata=${encodeURIComponent('{"n":2}')}`)).toBe('2');
    expect(await numbers('splits=split%201')).toBe('1');
    expect((await read(`${examples}/count`)).body).toBe(3);
    expect(Object.keys((await read(`${examples}?select=id&select=outputs`)).body[0]).sort()).toEqual(
      ['created_at', 'dataset_id', 'id', 'inputs', 'modified_at', 'name', 'outputs'].sort(),
    );
    const sparse = (await read(`${examples}?select=inputs&exclude_default_fields=true`)).body[0];
    expect(sparse).toEqual({ id: expect.any(String), inputs: { n: 3 } });
    for (const query of [`id=${hidden.id}`, `dataset=${secret}&id=${hidden.id}`, `id=${hidden.id}&as_of=latest`]) {
      expect([query, await numbers(query)]).toEqual([query, '']);
      expect((await read(`${examples}/count?${query}`)).body).toBe(0);
    }
    expect(await numbers(`dataset=${secret}`)).toBe('3,2,1');
    for (const query of ['select=source_run_id', 'limit=101']) {
      expect([query, (await read(`${examples}?${query}`)).status]).toEqual([query, 422]);
    }
    // The token is neither a key nor a token of a trace.
    expect((await api.ask(token, 'GET', `/datasets/${id}`)).status).toBe(401);
    expect((await read(`/public/${token}/run`)).status).toBe(404);
    for (const method of ['PUT', 'PATCH', 'DELETE', 'POST'] as const) {
      expect((await api.server.inject({ method, url: examples })).statusCode).toBe(405);
    }
  });

  it('gives access to attachments, by links that end with the share', async () => {
    const id = await addDataset();
    const { share_token: token = '' } = await client.shareDataset(id);
    const listed = async (query: string) => (await read(`/public/${token}/examples?${query}`)).body as Body[];
    expect((await listed('select=outputs')).map(({ attachment_urls }) => attachment_urls)).toEqual([
      undefined,
      undefined,
    ]);
    const keys = (examples: Body[]) => examples.map(({ attachment_urls }) => Object.keys(attachment_urls));
    expect(keys(await listed('select=attachment_urls'))).toEqual([[], ['attachment.note']]);
    const [{ attachment_urls: none }, { attachment_urls: links }] = await listed('');
    expect([none, links['attachment.note'].mime_type]).toEqual([{}, 'text/plain']);
    const url: string = links['attachment.note'].presigned_url;
    expect(await readLink(url)).toEqual([200, 'note of open']);
    const [ours] = (await ask('GET', `/examples?dataset=${id}&metadata={"n":1}&select=attachment_urls`)).body;

    await client.unshareDataset(id);
    await client.shareDataset(id);
    expect(await readLink(url)).toEqual([404, expect.not.stringContaining('note of open')]);
    expect(await readLink(ours.attachment_urls['attachment.note'].presigned_url)).toEqual([200, 'note of open']);
  });

  it('does not lock rows, and does not wait for a write', async () => {
    const id = await addDataset();
    const { share_token: token } = await client.shareDataset(id);
    await api.database.transaction(async (tx) => {
      await tx.query('SELECT FROM datasets WHERE id = $1 FOR UPDATE', [id]);
      for (const time of ['2020-01-01T00:00:00Z', new Date().toISOString(), '2200-01-01T00:00:00Z']) {
        const { body } = await read(`/public/${token}/examples?as_of=${time}`);
        expect([time, body.length]).toEqual([time, time.startsWith('2020') ? 0 : 2]);
      }
    });
  });

  it('does not answer conditions on fields that it does not show', async () => {
    const { share_token: token } = await client.shareDataset(await addDataset());
    const filter = (text: string) => read(`/public/${token}/examples/count?filter=${encodeURIComponent(text)}`);
    expect((await filter(`neq(source_run_id, "${randomUUID()}")`)).body).toMatchObject({ code: 'INVALID_FILTER' });
    expect((await filter('not(eq(source_run_id, null))')).status).toBe(400);
    expect((await filter('search("open")')).body).toBe(2);
  });

  it('limits the searches of a token', async () => {
    const [id, other] = [await addDataset(), await addDataset()];
    const [{ share_token: token }, { share_token: otherToken }] = [
      await client.shareDataset(id),
      await client.shareDataset(other),
    ];
    const readRepeatedly = (query: string) =>
      Promise.all(Array.from({ length: 40 }, () => read(`/public/${token}/examples${query}`)));
    const search = '?full_text_contains=x';
    expect((await readRepeatedly('')).filter(({ status }) => status !== 200)).toEqual([]);
    const searches = await readRepeatedly(search);
    expect(searches.filter(({ status }) => status === 200).length).toBeGreaterThanOrEqual(10);
    const refused = searches.find(({ status }) => status === 429);
    expect(refused).toMatchObject({ headers: { 'retry-after': '1' }, body: { code: 'RATE_LIMITED' } });
    expect((await read(`/public/${otherToken}/examples${search}`)).status).toBe(200);
    for (const query of ['/count?metadata={}', '?splits=x', '/count?filter=eq(metadata_key,"n")'])
      expect((await readRepeatedly(query)).map(({ status }) => status)).toContain(429);
  });

  it('lists experiments only on request', async () => {
    const id = await addDataset();
    const name = `experiment ${randomUUID()}`;
    await ask('POST', '/sessions', { name, reference_dataset_id: id, extra: { metadata: { model: 'm' } } });
    await ask('POST', '/sessions', { name: `other ${randomUUID()}` });
    const { share_token: token } = (await ask('PUT', `/datasets/${id}/share?share_projects=true`)).body;
    const sessions = `/public/${token}/datasets/sessions`;
    const { body, text } = await read(sessions);
    expect(body).toEqual([
      {
        id: expect.any(String),
        // Stock clients require the field.
        tenant_id: '00000000-0000-0000-0000-000000000000',
        name,
        description: null,
        start_time: expect.any(String),
        end_time: null,
        reference_dataset_id: id,
      },
    ]);
    expect(text).not.toMatch(new RegExp(`model|${acme.workspaceIds[0]}`));
    expect((await read(`${sessions}?name_contains=OTHER`)).body).toEqual([]);
    expect((await ask('PUT', `/datasets/${id}/share`)).body.share_token).toBe(token);
    expect((await read(sessions)).body).toEqual([]);
  });

  it.each(['dataset', 'workspace'])('ends at once when its %s is deleted', async (what) => {
    const id = await addDataset();
    const { share_token: token } = await client.shareDataset(id);
    const setDeleted = (value: string) =>
      api.database.execute(`UPDATE workspaces SET deleted_at = ${value} WHERE id = $1`, [acme.workspaceIds[0]]);
    if (what === 'dataset') await client.deleteDataset({ datasetId: id });
    else await setDeleted('now()');
    const statuses = await Promise.all(publicReads(token).map(async (path) => (await read(path)).status));
    if (what === 'workspace') await setDeleted('NULL');
    expect(statuses).toEqual([404, 404, 404, 404]);
    if (what === 'dataset') {
      expect(await api.database.query('SELECT FROM shares WHERE target_id = $1', [id])).toEqual([]);
    }
  });

  it('stores no token in clear, and refuses unknown ids', async () => {
    const id = await addDataset();
    const { share_token: token } = await client.shareDataset(id);
    const [row] = await api.database.query<object>('SELECT * FROM shares WHERE target_id = $1', [id]);
    expect(JSON.stringify(row)).not.toContain(token);
    for (const method of ['GET', 'PUT'] as const) {
      expect((await ask(method, `/datasets/${randomUUID()}/share`)).status).toBe(404);
    }
    expect((await read(`/public/${randomUUID()}/datasets`)).status).toBe(404);
    expect((await read('/public/x/datasets')).status).toBe(422);
  });
});

describe('a clone', () => {
  const clone = (payload: object) => ask('POST', '/datasets/clone', payload);
  const readNote = async (example: Body) => {
    const url = new URL(example.attachment_urls['attachment.note'].presigned_url).pathname;
    return (await api.server.inject({ method: 'GET', url })).body;
  };

  it('has the examples of a version, with attachments of its own', async () => {
    const source_dataset_id = await addDataset();
    const { as_of } = await client.readDatasetVersion({ datasetId: source_dataset_id, tag: 'latest' });
    await client.createExample({ dataset_id: source_dataset_id, inputs: { n: 3 } });
    const { id: target_dataset_id } = await client.createDataset(randomUUID());
    const { status, body } = await clone({ source_dataset_id, target_dataset_id, as_of });
    expect([status, body.length]).toEqual([200, 2]);
    const source = (await ask('GET', `/examples?dataset=${source_dataset_id}&as_of=${as_of}`)).body as Body[];
    const target = (await ask('GET', `/examples?dataset=${target_dataset_id}&order=recently_created`)).body as Body[];
    const content = ({ inputs, outputs, metadata, created_at }: Body) => ({ inputs, outputs, metadata, created_at });
    expect(target.map(content)).toEqual(source.map(content));
    expect(target.map(({ id }) => id).sort()).toEqual(body.map(({ id }: Body) => id).sort());
    expect((await ask('GET', `/datasets/${target_dataset_id}/versions`)).body).toHaveLength(1);
    expect((await ask('GET', `/datasets/${target_dataset_id}`)).body.example_count).toBe(2);

    await client.deleteDataset({ datasetId: source_dataset_id });
    const copied = body.find(({ inputs }: Body) => inputs.n === 1);
    expect(await readNote(copied)).toBe('note of open');
  });

  it('has only the chosen examples and splits', async () => {
    const source_dataset_id = await addDataset();
    const [second, first] = (await ask('GET', `/examples?dataset=${source_dataset_id}`)).body;
    for (const [choice, expected] of [
      [{ examples: [first.id] }, '1'],
      [{ split: 'split 2' }, '2'],
      [{ split: ['split 1', 'split 2'], examples: [second.id] }, '2'],
      [{ split: [], examples: [] }, '1,2'],
      [{ split: 'none' }, ''],
    ] as const) {
      const { id: target_dataset_id } = await client.createDataset(randomUUID());
      const { body } = await clone({ source_dataset_id, target_dataset_id, ...choice });
      const numbers = body
        .map(({ inputs }: Body) => inputs.n)
        .sort()
        .join();
      expect([choice, numbers]).toEqual([choice, expected]);
    }
  });

  it('is refused as a whole', async () => {
    const source_dataset_id = await addDataset();
    const inputsSchema = { properties: { n: { maximum: 1 } } };
    const { id: target_dataset_id } = await client.createDataset(randomUUID(), { inputsSchema });
    const ids = { source_dataset_id, target_dataset_id };
    for (const [payload, status] of [
      [ids, 422],
      [{ ...ids, source_dataset_id: randomUUID() }, 404],
      [{ ...ids, target_dataset_id: randomUUID() }, 404],
      [{ ...ids, as_of: 'never' }, 404],
      [{ source_dataset_id }, 422],
    ] as const) {
      expect([payload, (await clone(payload)).status]).toEqual([payload, status]);
    }
    expect((await ask('GET', `/datasets/${target_dataset_id}`)).body.example_count).toBe(0);
    expect((await clone({ ...ids, split: 'split 1' })).body).toHaveLength(1);
  });
});
