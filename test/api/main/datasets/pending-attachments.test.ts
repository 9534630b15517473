import { randomUUID } from 'node:crypto';
import { Client } from 'langsmith';
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest';
import { type ApiUnderTest, addOrganization, startApi } from '../../start-api.ts';

/** Attachments of examples whose write failed. */

let api: ApiUnderTest;
let client: Client;
let datasetId: string;

beforeAll(async () => {
  api = await startApi();
  const { adminKey: apiKey } = await addOrganization(api.database, 'acme');
  const apiUrl = await api.server.listen({ port: 0, host: '127.0.0.1' });
  client = new Client({ apiUrl, apiKey, autoBatchTracing: false, callerOptions: { maxRetries: 0 } });
});
afterAll(() => api.close());
beforeEach(async () => {
  datasetId = (await client.createDataset(randomUUID())).id;
});

const pending = async () =>
  (await api.database.query<{ id: string }>('SELECT id FROM pending_attachment_sets')).map(({ id }) => id);
const age = () => api.database.execute(`UPDATE pending_attachment_sets SET created_at = now() - interval '61 minutes'`);

async function storedSets(): Promise<string[]> {
  const sql = 'SELECT DISTINCT toString(run_id) AS id FROM attachments FINAL';
  const rows = await api.services.clickhouse.query<{ id: string }>({ name: 'stored-sets', sql });
  return rows.map(({ id }) => id);
}

function write(id: string = randomUUID()) {
  const content = new TextEncoder().encode('content') as Uint8Array<ArrayBuffer>;
  const attachments = { note: ['text/plain', content] as ['text/plain', Uint8Array<ArrayBuffer>] };
  return client.createExample({ id, dataset_id: datasetId, inputs: {}, attachments });
}

it('a later write deletes what a failed write has left', async () => {
  const { id } = await write();
  expect(await pending()).toEqual([]);
  const before = await storedSets();
  await expect(write(id)).rejects.toThrow(/already exists/);
  const [left = ''] = await pending();
  expect(await storedSets()).toEqual(expect.arrayContaining([...before, left]));

  await write();
  expect(await pending()).toEqual([left]);
  await age();
  const { id: last } = await write();
  expect(await pending()).toEqual([]);
  expect(await storedSets()).not.toContain(left);
  expect(await storedSets()).toEqual(expect.arrayContaining(before));
  for (const example of [id, last]) {
    const url = (await client.readExample(example)).attachments?.note?.presigned_url ?? '';
    expect(await (await fetch(url)).text()).toBe('content');
  }
});

it('a write that is still committing keeps its attachments, and an interrupted one cannot commit', async () => {
  const { id } = await write();
  await expect(write(id)).rejects.toThrow(/already exists/);
  const [left = ''] = await pending();
  await age();
  await api.database.transaction(async (tx) => {
    // As the transaction that commits the examples.
    await tx.execute('DELETE FROM pending_attachment_sets WHERE id = $1', [left]);
    await write();
    expect(await storedSets()).toContain(left);
  });
  expect(await pending()).toEqual([]);
});

it('a change and a clone leave nothing pending', async () => {
  const { id } = await write();
  const content = new TextEncoder().encode('new') as Uint8Array<ArrayBuffer>;
  await client.updateExample({ id, dataset_id: datasetId, attachments: { other: ['text/plain', content] } });
  const target = await client.createDataset(randomUUID());
  const apiKey = (client as unknown as { apiKey: string }).apiKey;
  const ids = { source_dataset_id: datasetId, target_dataset_id: target.id };
  expect((await api.ask(apiKey, 'POST', '/datasets/clone', ids)).status).toBe(200);
  expect(await pending()).toEqual([]);
});
