import { randomUUID } from 'node:crypto';
import type { Example, ExampleCreate } from 'langsmith/schemas';
import { describe, expect, it } from 'vitest';
import { forSuite } from '../../../for-suite.ts';
import { collect } from '../../collect.ts';
import { openClient } from '../../open-client.ts';
import { addOrganization, startApi } from '../../start-api.ts';

/** Examples through the stock SDK. */

const api = forSuite(() => startApi());
const acme = forSuite(() => addOrganization(api.database, 'acme'));
const client = forSuite(() =>
  openClient(api, acme.adminKey, { autoBatchTracing: false, callerOptions: { maxRetries: 0 } }),
);

const list = (query: Parameters<typeof client.listExamples>[0]) => collect(client.listExamples(query));
const inputs = (examples: readonly Example[]) => examples.map((example) => example.inputs.n).sort();

async function addDataset(count: number) {
  const dataset = await client.createDataset(randomUUID());
  const uploads = Array.from({ length: count }, (_, n) => ({ dataset_id: dataset.id, inputs: { n }, outputs: { n } }));
  const ids = (await client.createExamples(uploads)).map(({ id }) => id);
  return {
    id: dataset.id,
    ids,
    version: async () => (await client.readDatasetVersion({ datasetId: dataset.id, tag: 'latest' })).as_of,
  };
}

describe('examples', () => {
  it('may be large as JSON too, which the asynchronous client of Python sends', async () => {
    const { id: dataset_id } = await client.createDataset(randomUUID());
    const text = 'é'.repeat(4_000_000);
    const ask = async (method: 'POST' | 'PATCH', path: string, body: object) => {
      const answer = await api.ask(acme.adminKey, method, path, body);
      expect(answer.status).toBe(200);
      return answer.body;
    };
    const [id, other] = [randomUUID(), randomUUID()];
    expect((await ask('POST', '/examples', { id, dataset_id, inputs: { text } })).inputs).toEqual({ text });
    await ask('POST', '/examples/bulk', [{ id: other, dataset_id, inputs: { text } }]);
    await ask('PATCH', `/examples/${id}`, { outputs: { text } });
    await ask('PATCH', '/examples/bulk', [{ id: other, outputs: { text } }]);
    for (const each of [id, other]) expect((await client.readExample(each)).outputs).toEqual({ text });
  });

  it('are created, read, changed, listed and deleted', async () => {
    const { id: datasetId } = await client.createDataset(randomUUID());
    const made = await client.createExample({
      dataset_id: datasetId,
      inputs: { question: 'why?', deep: [1, { big: 1e300 }] },
      outputs: { answer: 'because' },
      metadata: { level: 1, tags: ['a'] },
      split: ['train', 'small'],
    });
    expect(made).toMatchObject({
      dataset_id: datasetId,
      inputs: { question: 'why?', deep: [1, { big: 1e300 }] },
      outputs: { answer: 'because' },
      metadata: { level: 1, tags: ['a'], dataset_split: ['train', 'small'] },
      source_run_id: null,
    });
    expect(await client.readExample(made.id)).toEqual(made);

    await client.updateExample({ id: made.id, dataset_id: datasetId, metadata: { level: 2 } });
    const changed = await client.readExample(made.id);
    expect(changed).toMatchObject({ inputs: made.inputs, outputs: made.outputs, created_at: made.created_at });
    expect(changed.metadata).toEqual({ level: 2, dataset_split: ['train', 'small'] });
    await client.updateExample({ id: made.id, inputs: { question: 'how?' }, split: 'test' });
    const again = await client.readExample(made.id);
    expect(again).toMatchObject({ inputs: { question: 'how?' }, outputs: { answer: 'because' } });
    expect(again.metadata).toEqual({ level: 2, dataset_split: ['test'] });

    expect((await client.readDataset({ datasetId })).example_count).toBe(1);
    await client.deleteExample(made.id);
    await expect(client.readExample(made.id)).rejects.toThrow(/404/);
    expect((await client.readDataset({ datasetId })).example_count).toBe(0);
  });

  it('of models and chats are created, and several are changed at once', async () => {
    const { id: datasetId } = await client.createDataset(randomUUID());
    const model = await client.createLLMExample('2 + 2?', '4', { datasetId });
    expect(model).toMatchObject({ inputs: { input: '2 + 2?' }, outputs: { output: '4' } });
    const [question, answer] = ['2 + 2?', '4'].map((content, at) => ({ type: at ? 'ai' : 'human', data: { content } }));
    const chat = await client.createChatExample([question!], answer, { datasetId });
    expect(chat).toMatchObject({ inputs: { input: [question] }, outputs: { output: answer } });

    const answered = await client.updateExamples([
      { id: model.id, dataset_id: datasetId, inputs: { input: '3 + 3?' }, outputs: { output: '6' } },
      { id: chat.id, dataset_id: datasetId, metadata: { level: 1 }, split: 'test' },
    ]);
    expect(answered).toMatchObject({ count: 2 });
    expect(await client.readExample(model.id)).toMatchObject({ inputs: { input: '3 + 3?' }, outputs: { output: '6' } });
    const changed = { inputs: { input: [question] }, metadata: { level: 1, dataset_split: ['test'] } };
    expect(await client.readExample(chat.id)).toMatchObject(changed);
  });

  it('are listed in pages, by ids, splits and metadata', async () => {
    const dataset = await client.createDataset(randomUUID());
    const uploads = Array.from({ length: 250 }, (_, n) => ({
      inputs: { n },
      dataset_id: dataset.id,
      split: n % 10 === 0 ? 'tenth' : 'rest',
      metadata: { parity: n % 2 === 0 ? 'even' : 'odd', by: { three: n % 3 } },
    }));
    const ids = (await client.createExamples(uploads)).map(({ id }) => id);
    const all = await list({ datasetId: dataset.id });
    expect(inputs(all)).toEqual(uploads.map(({ inputs: { n } }) => n).sort());
    expect(all[0]?.metadata).toMatchObject({ parity: expect.any(String) });
    expect(await list({ datasetName: dataset.name, limit: 7 })).toHaveLength(7);
    expect(inputs(await list({ datasetId: dataset.id, exampleIds: ids.slice(3, 5) }))).toEqual([3, 4]);
    expect(await list({ datasetId: dataset.id, splits: ['tenth'] })).toHaveLength(25);
    expect(await list({ datasetId: dataset.id, splits: ['tenth', 'rest'] })).toHaveLength(250);
    expect(await list({ datasetId: dataset.id, metadata: { parity: 'even', by: { three: 1 } } })).toHaveLength(41);
    await client.deleteExamples(ids.slice(0, 100));
    expect(await list({ datasetId: dataset.id })).toHaveLength(150);
  });

  it('are listed and deleted by many ids, and by none', async () => {
    const { id: dataset_id } = await client.createDataset(randomUUID());
    const examples = Array.from({ length: 1_000 }, (_, n) => ({ id: randomUUID(), dataset_id, inputs: { n } }));
    expect((await api.ask(acme.adminKey, 'POST', '/examples/bulk', examples)).status).toBe(200);
    const exampleIds = examples.map(({ id }) => id);
    expect(await list({ datasetId: dataset_id, exampleIds })).toHaveLength(1_000);
    for (const options of [{}, { hardDelete: true }]) await client.deleteExamples([], options);
    expect(await client.readDataset({ datasetId: dataset_id })).toMatchObject({ example_count: 1_000 });
    await client.deleteExamples(exampleIds);
    expect(await client.readDataset({ datasetId: dataset_id })).toMatchObject({ example_count: 0 });
  });

  it('keep attachments, which are renamed, retained and replaced', async () => {
    const dataset = await client.createDataset(randomUUID());
    const picture = new Uint8Array([0, 255, 137, 80]);
    const made = await client.createExample({
      dataset_id: dataset.id,
      inputs: { n: 1 },
      attachments: {
        'a.b': ['image/png', picture],
        text: { mimeType: 'text/plain', data: new Uint8Array([104, 105]) },
      },
    });
    const content = async () => {
      const [example] = await list({ datasetId: dataset.id, includeAttachments: true });
      const entries = Object.entries(example?.attachments ?? {}).map(async ([name, { presigned_url, mime_type }]) => {
        const response = await fetch(presigned_url);
        expect(response.headers.get('content-type')).toBe(mime_type);
        return [name, [...new Uint8Array(await response.arrayBuffer())]] as const;
      });
      return Object.fromEntries(await Promise.all(entries));
    };
    expect(await content()).toEqual({ 'a.b': [...picture], text: [104, 105] });
    const version = await client.readDatasetVersion({ datasetId: dataset.id, tag: 'latest' });

    await client.updateExample({ id: made.id, metadata: { x: 1 } });
    expect(Object.keys(await content())).toEqual(['a.b', 'text']);
    await client.updateExample({
      id: made.id,
      attachments_operations: { rename: { 'a.b': 'photo' }, retain: [] },
      attachments: { more: ['text/plain', new Uint8Array([1])] },
    });
    expect(await content()).toEqual({ photo: [...picture], more: [1] });
    await client.updateExample({ id: made.id, attachments: { only: ['text/plain', new Uint8Array([2])] } });
    expect(await content()).toEqual({ only: [2] });
    await expect(client.updateExample({ id: made.id, attachments_operations: { retain: ['none'] } })).rejects.toThrow(
      /422/,
    );

    const [old] = await list({ datasetId: dataset.id, includeAttachments: true, asOf: version.as_of });
    const url = old?.attachments?.['a.b']?.presigned_url ?? '';
    expect([...new Uint8Array(await (await fetch(url)).arrayBuffer())]).toEqual([...picture]);
    await client.deleteExamples([made.id], { hardDelete: true });
    expect((await fetch(url)).status).toBe(404);
    expect(await list({ datasetId: dataset.id, asOf: version.as_of })).toEqual([]);
  });

  it('take inputs, outputs and attachments from a run', async () => {
    const dataset = await client.createDataset(randomUUID());
    const runId = randomUUID();
    const run = {
      id: runId,
      name: 'r',
      run_type: 'chain',
      inputs: { q: 1 },
      outputs: { a: 2 },
      start_time: Date.now(),
    };
    const tracing = await openClient(api, acme.adminKey);
    await tracing.createRun({
      ...run,
      project_name: 'runs',
      trace_id: runId,
      dotted_order: `20260101T000000000000Z${runId}`,
      attachments: { file: ['text/plain', new Uint8Array([7])], other: ['text/plain', new Uint8Array([8])] },
    });
    await tracing.awaitPendingTraceBatches();
    await api.settled();
    const source = { dataset_id: dataset.id, source_run_id: runId };
    const readAttachments = async ({ attachments }: Pick<Example, 'attachments'>) => {
      const bytes = Object.entries(attachments ?? {}).map(async ([name, { presigned_url }]) => [
        name,
        ...new Uint8Array(await (await fetch(presigned_url)).arrayBuffer()),
      ]);
      return (await Promise.all(bytes)).sort();
    };
    const made = await client.createExample({ ...source, inputs: {}, use_source_run_io: true });
    expect(made).toMatchObject({ inputs: { q: 1 }, outputs: { a: 2 }, source_run_id: runId });
    const all = [
      ['file', 7],
      ['other', 8],
    ];
    expect(await readAttachments(made)).toEqual(all);
    // Also if only some of them are named.
    const named = { ...source, inputs: {}, use_source_run_io: true, use_source_run_attachments: ['file'] };
    expect(await readAttachments(await client.createExample(named))).toEqual(all);
    // An attachment of the example replaces that of the run.
    const attachments: ExampleCreate['attachments'] = { file: ['text/plain', new Uint8Array([9])] };
    const { example_ids: ids } = await client.uploadExamplesMultipart(dataset.id, [
      { ...source, inputs: {}, use_source_run_io: true, attachments },
      { ...source, inputs: { q: 2 }, use_source_run_attachments: ['other'] },
    ]);
    const uploaded = await Promise.all(ids.map((id) => client.readExample(id)));
    expect(await Promise.all(uploaded.map(readAttachments))).toEqual([[['file', 9], all[1]], [all[1]]]);
    const missing = { dataset_id: dataset.id, inputs: {}, source_run_id: randomUUID(), use_source_run_io: true };
    await expect(client.createExample(missing)).rejects.toThrow(/does not exist/);
  });

  it('take numbers from a run with all their digits', async () => {
    const dataset = await client.createDataset(randomUUID());
    const runId = randomUUID();
    const inputsText = '{"id":12345678901234567890,"share":0.10}';
    const headers = { 'x-api-key': acme.adminKey, 'content-type': 'application/json' };
    const run = { id: runId, name: 'r', run_type: 'chain', start_time: Date.now(), session_name: 'runs' };
    const order = { trace_id: runId, dotted_order: `20260101T000000000000Z${runId}` };
    const body = `${JSON.stringify({ ...run, ...order }).slice(0, -1)},"inputs":${inputsText}}`;
    expect((await fetch(`${await api.listen()}/runs`, { method: 'POST', headers, body })).status).toBe(202);
    await api.settled();
    const source = { source_run_id: runId, use_source_run_io: true };
    const { id } = await client.createExample({ dataset_id: dataset.id, inputs: {}, ...source });
    const stored = await (await fetch(`${await api.listen()}/examples/${id}`, { headers })).text();
    expect(stored).toContain(`"inputs":${inputsText}`);
  });
});

describe('versions', () => {
  it('are exact: every read at a version returns what was there', async () => {
    const dataset = await addDataset(3);
    const first = await dataset.version();
    await client.updateExample({ id: dataset.ids[0]!, inputs: { n: 10 } });
    const second = await dataset.version();
    await client.deleteExample(dataset.ids[1]!);
    await client.createExample({ dataset_id: dataset.id, inputs: { n: 4 } });
    const third = await dataset.version();
    const at = async (asOf: string | Date) => inputs(await list({ datasetId: dataset.id, asOf }));
    for (const form of [
      (time: string) => time,
      (time: string) => new Date(time),
      (time: string) => new Date(Date.parse(time) + 0.4),
    ]) {
      expect(await at(form(first))).toEqual([0, 1, 2]);
      expect(await at(form(second))).toEqual([1, 10, 2]);
      expect(await at(form(third))).toEqual([10, 2, 4]);
    }
    expect(await at(new Date(Date.parse(first) - 1))).toEqual([]);

    await client.updateDatasetTag({ datasetId: dataset.id, asOf: second, tag: 'prod' });
    expect(await at('prod')).toEqual([1, 10, 2]);
    expect(await client.readDatasetVersion({ datasetId: dataset.id, tag: 'prod' })).toMatchObject({
      as_of: second,
      tags: ['prod'],
    });
    const near = { datasetId: dataset.id, asOf: new Date(Date.parse(third) - 1) };
    expect((await client.readDatasetVersion(near)).as_of < third).toBe(true);
    await client.updateDatasetTag({ datasetId: dataset.id, asOf: third, tag: 'prod' });
    expect(await at('prod')).toEqual([10, 2, 4]);

    const diff = await client.diffDatasetVersions({ datasetId: dataset.id, fromVersion: first, toVersion: third });
    expect(diff).toEqual({
      examples_added: [expect.any(String)],
      examples_modified: [dataset.ids[0]],
      examples_removed: [dataset.ids[1]],
    });
  });

  it('have splits', async () => {
    const dataset = await addDataset(4);
    const before = await dataset.version();
    const splits = (asOf?: string) => client.listDatasetSplits({ datasetId: dataset.id, ...(asOf && { asOf }) });
    expect(await splits()).toEqual(['base']);
    await client.updateDatasetSplits({
      datasetId: dataset.id,
      splitName: 'train',
      exampleIds: dataset.ids.slice(0, 2),
    });
    expect(await splits()).toEqual(['base', 'train']);
    expect(inputs(await list({ datasetId: dataset.id, splits: ['train'] }))).toEqual([0, 1]);
    await client.updateDatasetSplits({
      datasetId: dataset.id,
      splitName: 'train',
      exampleIds: [dataset.ids[0]!],
      remove: true,
    });
    expect(inputs(await list({ datasetId: dataset.id, splits: ['train'] }))).toEqual([1]);
    expect(await splits(before)).toEqual(['base']);
  });
});
