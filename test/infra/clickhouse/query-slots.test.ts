import { setMaxListeners } from 'node:events';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { type ClickHouse, openClickHouse } from '../../../infra/clickhouse/client.ts';
import { QuerySlots } from '../../../infra/clickhouse/query-slots.ts';
import { runForTenant } from '../../../infra/fairness/tenant-context.ts';
import { freshStores } from '../../engines/stores.ts';
import { forSuite } from '../../for-suite.ts';
import { logger } from '../../silent-logger.ts';
import { until } from '../until.ts';

const stores = forSuite(() => freshStores());
let clickhouse: ClickHouse;
beforeAll(async () => {
  clickhouse = openClickHouse({
    url: stores.clickhouseUrl,
    logger,
    timeoutMs: 60_000,
    querySlots: 4,
  });
});
afterAll(async () => {
  await clickhouse?.close();
});

const sleeping = 'SELECT sum(sleepEachRow(0.2)) FROM numbers(300) SETTINGS max_block_size = 1';

/** Returns the running queries with this name on the server, with their priority. */
function running(name: string): Promise<{ priority: string }[]> {
  return stores.clickhouse.query({
    name: 'test',
    sql: `SELECT Settings['priority'] AS priority FROM system.processes WHERE Settings['log_comment'] = {name:String}`,
    params: { name },
  });
}

/** Sends `count` queries for an organisation; the queries run until the returned function ends them. */
function flood(organizationId: string, name: string, count: number): () => Promise<void> {
  const controller = new AbortController();
  setMaxListeners(count * 3, controller.signal);
  const queries = Array.from({ length: count }, () =>
    runForTenant({ organizationId }, () => clickhouse.query({ name, sql: sleeping, signal: controller.signal })),
  );
  const ended = Promise.allSettled(queries);
  return async () => {
    controller.abort(new Error('enough'));
    for (const result of await ended) expect(String((result as PromiseRejectedResult).reason)).toBe('Error: enough');
  };
}

it('an organisation whose queries fill all slots delays neither other organisations nor Runlake itself', async () => {
  const end = flood('flooding', 'flood-slots', 64);
  onTestFinished(() => end());
  await until('the slots to be full', async () => (await running('flood-slots')).length === 4);
  const sql = `SELECT Settings['priority'] AS priority FROM system.processes WHERE query_id = queryID()`;
  const ask = () => clickhouse.query<{ priority: string }>({ name: 'quiet', sql });
  // ClickHouse pauses the other organisation's queries for this query.
  expect(await runForTenant({ organizationId: 'quiet' }, ask)).toEqual([{ priority: '1' }]);
  expect((await running('flood-slots')).map(({ priority }) => priority)).toEqual(['2', '2', '2', '2']);
  await clickhouse.ping();
});

it('the default number of slots follows the threads that ClickHouse assigns to a query', async () => {
  const [{ threads }] = (await stores.clickhouse.query<{ threads: number }>({
    name: 'test',
    sql: `SELECT toUInt32(getSetting('max_threads')) AS threads`,
  })) as [{ threads: number }];
  const before = clickhouse;
  clickhouse = openClickHouse({
    url: stores.clickhouseUrl,
    logger,
    timeoutMs: 60_000,
  });
  const expected = Math.max(4, 2 * threads);
  const end = flood('flooding', 'default-slots', expected + 3);
  onTestFinished(async () => {
    await end();
    await clickhouse.close();
    clickhouse = before;
  });
  await until('the slots to be full', async () => (await running('default-slots')).length === expected);
  // This query starts later, so the other queries have had time to start.
  await clickhouse.ping();
  expect(await running('default-slots')).toHaveLength(expected);
});

it('queries of a single organisation have the same priority', async () => {
  const end = flood('alone', 'alone', 2);
  onTestFinished(() => end());
  await until('two queries to run', async () => (await running('alone')).length === 2);
  expect(await running('alone')).toEqual([{ priority: '2' }, { priority: '2' }]);
});

it('an organisation that queries continuously loses its priority when its share is used up, and regains it later', async () => {
  let nowMs = 0;
  const slots = new QuerySlots(4, () => nowMs);
  const ask = (organizationId: string, work: (priority: string) => Promise<string>) =>
    slots.run({ organizationId }, { maxWaitMs: 10_000, signal: undefined }, work);
  let end = (_: string) => {};
  const over = new Promise<string>((resolve) => {
    end = resolve;
  });
  const floodingQueries = Array.from({ length: 4 }, () => ask('flooding', () => over));
  const busy = async (ms: number) =>
    ask('busy', async (priority) => {
      nowMs += ms;
      return priority;
    });
  // Two organisations share ten seconds with decay: 3.0 s, 5.2 s.
  expect([await busy(3_000), await busy(3_000), await busy(3_000)]).toEqual(['1', '1', '2']);
  nowMs += 2_000;
  expect(await busy(3_000)).toBe('1');
  end('2');
  await Promise.all(floodingQueries);
});

it('ends a query on the server when its client disconnects, also if it still waits for a slot', async () => {
  const disconnected = new AbortController();
  const context = { organizationId: 'leaving', disconnected: disconnected.signal };
  const queries = Array.from({ length: 6 }, () =>
    runForTenant(context, () => clickhouse.query({ name: 'leaving', sql: sleeping })).catch((error) => error.message),
  );
  await until('four to run', async () => (await running('leaving')).length === 4);
  disconnected.abort(new Error('the client has gone'));
  expect(await Promise.all(queries)).toEqual(Array(6).fill('the client has gone'));
  await until('none to run', async () => (await running('leaving')).length === 0);
});
