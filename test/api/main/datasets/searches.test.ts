/** Searches that take long, here because the table of examples is locked. An organisation may hold ten connections. */

import { randomUUID } from 'node:crypto';
import { beforeAll, expect, it } from 'vitest';
import { registry } from '../../../../infra/telemetry/metrics.ts';
import { forSuite } from '../../../for-suite.ts';
import { deferred } from '../../../infra/deferred.ts';
import { listLockWaits } from '../../../infra/postgres/lock-waits.ts';
import { until } from '../../../infra/until.ts';
import { addOrganization, startApi } from '../../start-api.ts';

const api = forSuite(() => startApi());
let key: string;
let dataset: string;
let token: string;

beforeAll(async () => {
  key = (await addOrganization(api.database, 'acme')).adminKey;
  dataset = (await api.ask(key, 'POST', '/datasets', { name: randomUUID() })).body.id;
  const example = { dataset_id: dataset, inputs: {}, metadata: { a: { b: 'x' } } };
  expect((await api.ask(key, 'POST', '/examples', example)).status).toBe(200);
  token = (await api.ask(key, 'PUT', `/datasets/${dataset}/share`, {})).body.share_token;
});

const filter = encodeURIComponent('and(eq(metadata_key, "a.b"), eq(metadata_value, "x"))');

/** Sends a request without a key. */
async function readShare(path: string) {
  const answer = await api.server.inject({ method: 'GET', url: `/public/${token}/${path}` });
  return { status: answer.statusCode, body: answer.json() };
}

/** Locks the examples of all organisations. Resolves with a function that ends the lock. */
async function lockExamples(): Promise<() => Promise<void>> {
  const [locked, ended] = [deferred(), deferred()];
  const lock = api.database.transaction(async (tx) => {
    await tx.execute('LOCK TABLE examples');
    locked.resolve();
    await ended.promise;
  });
  await locked.promise;
  return async () => {
    ended.resolve();
    await lock;
  };
}

/** Waits until so many searches hold a connection, and so many wait for a slot. */
const untilSearching = (holding: number, waiting: number) =>
  until(`${holding} searches to run and ${waiting} to wait`, async () => {
    const running = await listLockWaits(api.database);
    const lines = (await registry.getSingleMetricAsString('runlake_fair_slots')).split('\n');
    return (
      running.length === holding &&
      lines.includes(`runlake_fair_slots{slots="postgres-searches",state="waiting"} ${waiting}`)
    );
  });

async function expectOthersServed() {
  for (let n = 0; n < 5; n++) expect((await api.ask(key, 'GET', '/datasets')).status).toBe(200);
}

it('of one organisation hold two connections; the others wait', async () => {
  const endLock = await lockExamples();
  const queries = [
    `/examples?dataset=${dataset}&filter=${filter}`,
    `/examples/count?dataset=${dataset}&filter=${filter}`,
    `/examples?dataset=${dataset}&full_text_contains=x`,
    `/examples?dataset=${dataset}&splits=base`,
    `/examples?dataset=${dataset}&metadata={"a":{}}`,
  ];
  const answers = Array.from({ length: 15 }, (_, n) => api.ask(key, 'GET', queries[n % queries.length]!));
  try {
    await untilSearching(2, 13);
    const projects = api.ask(key, 'GET', `/sessions?filter=${filter}`);
    await untilSearching(2, 14);
    answers.push(projects);
    await expectOthersServed();
    await untilSearching(2, 14);
  } finally {
    await endLock();
  }
  for (const { status, body } of await Promise.all(answers)) expect([status, body]).toEqual([200, body]);
});

it('of a share hold two connections, and each ends after five seconds with advice', async () => {
  const endLock = await lockExamples();
  const answers = Array.from({ length: 3 }, () => readShare(`examples/count?filter=${filter}`));
  answers.push(readShare(`examples?filter=${filter}`));
  try {
    await untilSearching(2, 2);
    await expectOthersServed();
    expect(await Promise.race(answers)).toMatchObject({
      status: 400,
      body: {
        code: 'SEARCH_TOO_SLOW',
        detail: 'The search takes longer than 5000 ms.',
        remedy: expect.stringContaining('Add conditions'),
      },
    });
  } finally {
    await endLock();
  }
  const statuses = (await Promise.all(answers)).map(({ status }) => status).sort();
  expect([statuses.slice(0, 2), statuses[3]]).toEqual([[200, 200], 400]);
});
