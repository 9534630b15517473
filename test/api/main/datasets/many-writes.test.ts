/** Writes of one organisation to more datasets than it has connections. */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { registry } from '../../../../infra/telemetry/metrics.ts';
import { deferred } from '../../../infra/deferred.ts';
import { until } from '../../../infra/until.ts';
import { type ApiUnderTest, addOrganization, startApi } from '../../start-api.ts';

const writes = 14;
let api: ApiUnderTest;
let key: string;
let otherKey: string;

beforeAll(async () => {
  api = await startApi();
  key = (await addOrganization(api.database, 'acme')).adminKey;
  otherKey = (await addOrganization(api.database, 'other')).adminKey;
});
afterAll(() => api?.close());

async function addDataset(): Promise<string> {
  const { status, body } = await api.ask(key, 'POST', '/datasets', { name: randomUUID() });
  expect([status, body]).toEqual([200, body]);
  return body.id;
}

/** Locks datasets like slow writes. Resolves with a function that ends the locks. */
async function lockDatasets(ids: readonly string[]): Promise<() => Promise<void>> {
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

it('leave connections for other organisations', async () => {
  const datasets: string[] = [];
  for (let n = 0; n < writes; n++) datasets.push(await addDataset());
  const endLocks = await lockDatasets(datasets);
  const answers = datasets.map((dataset_id) => api.ask(key, 'POST', '/examples', { dataset_id, inputs: {} }));
  try {
    await until('the other writes to wait for a connection', async () => {
      const lines = (await registry.getSingleMetricAsString('runlake_fair_slots')).split('\n');
      return lines.includes(`runlake_fair_slots{slots="postgres-connections",state="waiting"} ${writes - 10}`);
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
