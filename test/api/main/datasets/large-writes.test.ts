/** Small requests that would write, or read for a write, much more than they send. */

import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import { forSuite } from '../../../for-suite.ts';
import { addOrganization, startApi } from '../../start-api.ts';

const maxBodyBytes = 1_000_000;
const api = forSuite(() => startApi({ config: { maxRunBytes: 100_000, maxBodyBytes } }));

const acme = forSuite(() => addOrganization(api.database, 'acme'));

type Ask = readonly [method: 'POST' | 'PATCH' | 'PUT', url: string, body: object];

const ask = (...[method, url, body]: Ask) => api.ask(acme.adminKey, method, url, body);

/** Adds a dataset with examples whose metadata has the given size. */
async function addDataset(examples: number, metadataBytes = 10) {
  const dataset_id = (await ask('POST', '/datasets', { name: randomUUID() })).body.id as string;
  const metadata = { text: 'x'.repeat(metadataBytes) };
  const ids = Array.from({ length: examples }, () => randomUUID());
  const perRequest = Math.floor(maxBodyBytes / (metadataBytes + 200));
  for (let at = 0; at < ids.length; at += perRequest) {
    const items = ids.slice(at, at + perRequest).map((id) => ({ id, dataset_id, inputs: {}, metadata }));
    expect((await ask('POST', '/examples/bulk', items)).status).toBe(200);
  }
  return { dataset_id, ids };
}

async function addRun(bytes: number): Promise<string> {
  const id = randomUUID();
  const run = { id, name: 'source', run_type: 'chain', inputs: { text: 'x'.repeat(bytes) }, start_time: new Date() };
  expect((await ask('POST', '/runs', run)).status).toBe(202);
  await api.settled();
  return id;
}

/** Sends a request that writes `some` examples, which must succeed, and one that writes `many`, which must not. */
async function expectLimit(dataset_id: string, ids: readonly string[], write: (ids: readonly string[]) => Ask) {
  const versions = async () => (await api.ask(acme.adminKey, 'GET', `/datasets/${dataset_id}/versions`)).body.length;
  const before = await versions();
  expect(await ask(...write(ids))).toMatchObject({ status: 400, body: { code: 'BAD_REQUEST' } });
  expect(await versions()).toBe(before);
  expect((await ask(...write(ids.slice(0, 5)))).status).toBeLessThan(300);
  expect(await versions()).toBe(before + 1);
}

it('limits the metadata that a change adds to many examples', async () => {
  const { dataset_id, ids } = await addDataset(2_000);
  const operations = [{ key: 'text', operation: 'SET', value: 'y'.repeat(60_000) }];
  await expectLimit(dataset_id, ids, (example_ids) => [
    'PATCH',
    `/v1/platform/datasets/${dataset_id}/examples/metadata`,
    { example_ids, operations },
  ]);
});

it.each<[string, (dataset_id: string, ids: readonly string[]) => Ask]>([
  [
    'a change of metadata',
    (id, example_ids) => [
      'PATCH',
      `/v1/platform/datasets/${id}/examples/metadata`,
      { example_ids, operations: [{ key: 'n', operation: 'SET', value: 1 }] },
    ],
  ],
  ['a change of a split', (id, examples) => ['PUT', `/datasets/${id}/splits`, { split_name: 'test', examples }]],
  [
    'an update of examples',
    (dataset_id, ids) => ['PATCH', '/examples/bulk', ids.map((id) => ({ id, dataset_id, outputs: { n: 1 } }))],
  ],
])('limits the stored metadata that %s reads', async (_, write) => {
  const { dataset_id, ids } = await addDataset(30, 60_000);
  await expectLimit(dataset_id, ids, (some) => write(dataset_id, some));
});

it('limits the inputs that examples copy from runs, and counts a run once for each example', async () => {
  const first = await addRun(90_000);
  const others: string[] = [];
  for (let n = 1; n < 20; n++) others.push(await addRun(60_000));
  const { dataset_id } = await addDataset(1);
  const copies = (runIds: readonly string[]) =>
    runIds.map((source_run_id) => ({ dataset_id, source_run_id, use_source_run_io: true }));
  for (const runIds of [Array<string>(2_000).fill(first), others]) {
    await expectLimit(dataset_id, runIds, (some) => ['POST', '/examples/bulk', copies(some)]);
  }
});
