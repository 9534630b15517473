/** Requests that wait for the locks of datasets. An organisation may hold ten connections. */

import { randomUUID } from 'node:crypto';
import { beforeAll, expect, it } from 'vitest';
import { registry } from '../../../../infra/telemetry/metrics.ts';
import { forSuite } from '../../../for-suite.ts';
import { deferred } from '../../../infra/deferred.ts';
import { untilLockWait } from '../../../infra/postgres/lock-waits.ts';
import { until } from '../../../infra/until.ts';
import { type ApiUnderTest, addOrganization, startApi } from '../../start-api.ts';

const requests = 12;
const api = forSuite(() => startApi());
let key: string;
let otherKey: string;
const targets: string[] = [];

beforeAll(async () => {
  key = (await addOrganization(api.database, 'acme')).adminKey;
  otherKey = (await addOrganization(api.database, 'other')).adminKey;
  for (let n = 0; n < requests; n++) targets.push((await addDataset()).dataset);
});

type Method = Parameters<ApiUnderTest['ask']>[1];

const ask = (method: Method, url: string, body?: object) => api.ask(key, method, url, body);

async function addDataset() {
  const dataset = (await ask('POST', '/datasets', { name: randomUUID() })).body.id as string;
  const items = Array.from({ length: requests }, () => ({ id: randomUUID(), dataset_id: dataset, inputs: {} }));
  expect((await ask('POST', '/examples/bulk', items)).status).toBe(200);
  return { dataset, examples: items.map(({ id }) => id) };
}

/** Locks datasets like slow writes. Resolves with a function that ends the locks. */
async function lockDatasets(...ids: readonly string[]): Promise<() => Promise<void>> {
  const [locked, ended] = [deferred(), deferred()];
  const write = api.database.transaction(async (tx) => {
    await tx.query('SELECT FROM datasets WHERE id = ANY ($1) FOR UPDATE', [ids]);
    locked.resolve();
    await ended.promise;
  });
  await locked.promise;
  return async () => {
    ended.resolve();
    await write;
  };
}

type Send = (dataset: string, example: string, n: number) => ReturnType<typeof ask>;

it.each<[string, Send]>([
  ['writes', (dataset_id) => ask('POST', '/examples', { dataset_id, inputs: {} })],
  ['deletions of examples', (_, id) => ask('DELETE', `/examples/${id}`)],
  [
    'permanent deletions of examples',
    (_, id) => ask('POST', '/v1/platform/datasets/examples/delete', { example_ids: [id], hard_delete: true }),
  ],
  ['reads at a later time', (id) => ask('GET', `/examples?dataset=${id}&as_of=2200-01-01T00:00:00Z`)],
  ['tags', (id, _, n) => ask('PUT', `/datasets/${id}/tags`, { as_of: 'latest', tag: `tag ${n}` })],
  ['changes of the dataset', (id, _, n) => ask('PATCH', `/datasets/${id}`, { description: `${n}` })],
  [
    'copies to other datasets',
    (id, _, n) => ask('POST', '/datasets/clone', { source_dataset_id: id, target_dataset_id: targets[n] }),
  ],
])('%s leave connections for other requests', async (_, send) => {
  const { dataset, examples } = await addDataset();
  const endLocks = await lockDatasets(dataset);
  const answers = examples.map((example, n) => send(dataset, example, n));
  try {
    await untilLockWait(api.database);
    for (let n = 0; n < 5; n++) expect((await api.ask(key, 'GET', '/datasets')).status).toBe(200);
  } finally {
    await endLocks();
  }
  for (const { status, body } of await Promise.all(answers)) expect([status < 300, body]).toEqual([true, body]);
});

it('gives up after a few seconds, with an error that clients retry', async () => {
  const { dataset } = await addDataset();
  const endLocks = await lockDatasets(dataset);
  const add = () => ask('POST', '/examples', { dataset_id: dataset, inputs: {} });
  expect(await add()).toMatchObject({ status: 503, body: { code: 'DATABASE_UNAVAILABLE' } });
  await endLocks();
  expect((await add()).status).toBe(200);
});

it('writes to many datasets leave connections for other organisations', async () => {
  const datasets: string[] = [];
  for (let n = 0; n < 14; n++) datasets.push((await addDataset()).dataset);
  const endLocks = await lockDatasets(...datasets);
  const answers = datasets.map((dataset_id) => ask('POST', '/examples', { dataset_id, inputs: {} }));
  try {
    await until('the other writes to wait for a connection', async () => {
      const lines = (await registry.getSingleMetricAsString('runlake_fair_slots')).split('\n');
      return lines.includes('runlake_fair_slots{slots="postgres-connections",state="waiting"} 4');
    });
    for (let n = 0; n < 5; n++) {
      expect((await api.ask(otherKey, 'GET', '/datasets')).status).toBe(200);
      expect((await api.ask(otherKey, 'POST', '/datasets', { name: `${n}` })).status).toBe(200);
    }
  } finally {
    await endLocks();
  }
  for (const { status, body } of await Promise.all(answers)) expect([status, body]).toEqual([200, body]);
});
