/** Queries of one workspace go to the shard that has its rows, and return the rows of the Distributed tables. */
import { afterAll, afterEach, beforeAll, beforeEach, expect, test, vi } from 'vitest';
import { type ClickHouse, openClickHouse } from '../../../infra/clickhouse/client.ts';
import { migrate } from '../../../infra/migrations/migrate.ts';
import { createLogger } from '../../../infra/telemetry/logger.ts';
import { nilUuid } from '../../../pipelines/ingest/run-event/run-event.ts';
import { buildUsageQuery, type UsageCounts } from '../../../pipelines/usage/report-query.ts';
import { planBuckets } from '../../../pipelines/usage/rollup-query.ts';
import { readUsageState, setUsageLimit } from '../../../pipelines/usage/usage-limits.ts';
import { askClickhouseEngine, withDatabase } from '../../engines/ask-engines.ts';
import { type DedicatedShards, startDedicatedShards } from '../../engines/own-shards.ts';
import { type FreshStores, freshStores } from '../../engines/stores.ts';
import { folderForSuite } from '../../folders.ts';
import { deriveUuid } from '../../pipelines/runs/run-events.ts';
import { openTcpProxy, type TcpProxy } from '../tcp-proxy.ts';

const folder = folderForSuite();
const logger = createLogger('silent', 'test');
const workspaces = Array.from({ length: 8 }, (_, index) => deriveUuid('workspace', index));
const nowMs = Date.UTC(2026, 2, 20, 12);
let shards: DedicatedShards;
let postgres: FreshStores;
let proxies: TcpProxy[];
let clickhouse: ClickHouse;

beforeAll(async () => {
  shards = await startDedicatedShards(folder, 2);
  postgres = await freshStores();
  const stored = await openDatabase('stored');
  await migrate({ clickhouse: stored, database: postgres.database, logger });
  await insertUsage(stored);
  await stored.close();
});

afterAll(async () => {
  await Promise.all([postgres?.close(), shards?.stop()]);
});

beforeEach(async () => {
  const urls = shards.addresses.clickhouseUrl.split(',').map((url) => new URL(url));
  proxies = await Promise.all(urls.map(({ hostname, port }) => openTcpProxy(hostname, Number(port))));
});

afterEach(async () => {
  await clickhouse?.close();
  await Promise.all(proxies.map((proxy) => proxy.close()));
});

/** Opens a client of both servers, each through its proxy if there are any. */
async function openDatabase(name: string): Promise<ClickHouse> {
  const { clickhouseUrl, clickhouseCluster: cluster } = shards.addresses;
  await askClickhouseEngine(clickhouseUrl, `CREATE DATABASE IF NOT EXISTS ${name} ENGINE = Atomic`);
  const urls = clickhouseUrl.split(',').map((url, index) => {
    const port = proxies?.[index]?.port;
    return port === undefined ? url : Object.assign(new URL(url), { port: String(port) }).href;
  });
  return openClickHouse({ url: withDatabase(urls.join(','), name), cluster, logger, timeoutMs: 30_000 });
}

/** Workspace `n` has `n + 1` traces of each of two projects in each hour of 40 days. */
async function insertUsage(stored: ClickHouse): Promise<void> {
  const counts = `['workspace' AS first, 'project' AS second][by] AS dimension, at AS time,
    if(by = 1, [tenant], [{one:UUID}, {other:UUID}]) AS ids`;
  for (const [table, column, time, traces] of [
    ['usage_hourly', 'hour', `toDateTime('2026-02-01', 'UTC') + INTERVAL number HOUR`, 1],
    ['usage_daily', 'day', `toDate('2026-02-01') + number`, 24],
  ] as const)
    await stored.command({
      name: 'test',
      sql: `INSERT INTO ${table} (tenant_id, dimension, ${column}, ids, traces, roll_up)
        SELECT tenant, dimension, time, ids, arrayMap(_ -> toUInt64(${traces} * position * if(by = 1, 2, 1)), ids), 1
        FROM (SELECT tenant, position, by, ${counts} FROM (SELECT ${time} AS at FROM numbers(${(40 * 24) / traces}))
          ARRAY JOIN [1, 2] AS by ARRAY JOIN {tenants:Array(UUID)} AS tenant, arrayEnumerate({tenants:Array(UUID)}) AS position)`,
      params: { tenants: workspaces, one: deriveUuid('one'), other: deriveUuid('other') },
    });
}

/** Returns how many of the statements so far with this name went to each server. */
const countStatements = (name: string) =>
  proxies.map((proxy) => proxy.sent().toString('latin1').split(`log_comment=${name}&`).length - 1);

/** Returns the shard of each workspace by the Distributed table, counted from 1. */
async function readShards(): Promise<Map<string, number>> {
  const sql = 'SELECT DISTINCT tenant_id, _shard_num AS shard FROM usage_daily';
  const rows = await clickhouse.query<{ tenant_id: string; shard: number }>({ name: 'test', sql });
  return new Map(rows.map(({ tenant_id, shard }) => [tenant_id, shard]));
}

const order = (rows: readonly UsageCounts[]) =>
  rows
    .map(({ bucket, ids, traces }) => [bucket, ...ids.map((id, index) => `${id} ${traces[index]}`).toSorted()].join())
    .toSorted();

test.each([
  ['hours and days in buckets of a week', '2026-02-01T05:00:00Z', '2026-03-10T07:00:00Z'],
  ['days', '2026-02-03T00:00:00Z', '2026-02-23T00:00:00Z'],
  ['hours', '2026-02-03T04:00:00Z', '2026-02-03T20:00:00Z'],
])('usage of one workspace is read from its shard: %s', async (_name, start, end) => {
  clickhouse = await openDatabase('stored');
  const stored = await readShards();
  expect(new Set(stored.values())).toEqual(new Set([1, 2]));
  const plan = planBuckets({ startMs: Date.parse(start), endMs: Date.parse(end) });
  for (const workspace of workspaces) {
    const before = countStatements('granular-usage');
    const usage = await clickhouse.query<UsageCounts>(buildUsageQuery(plan, [workspace], 'project')!);
    const sent = countStatements('granular-usage').map((count, index) => count - before[index]!);
    expect(sent).toEqual([1, 2].map((shard) => (stored.get(workspace) === shard ? 1 : 0)));
    // Several workspaces are read from the Distributed tables.
    const distributed = buildUsageQuery(plan, [workspace, deriveUuid('without usage')], 'project')!;
    expect(order(usage)).toEqual(order(await clickhouse.query(distributed)));
    expect(usage.length).toBeGreaterThan(5);
  }
  // The shard of a workspace is asked for once.
  expect(countStatements('find-shard').reduce((sum, count) => sum + count, 0)).toBe(workspaces.length);
  expect(await clickhouse.query(buildUsageQuery(plan, [deriveUuid('without usage')], 'user')!)).toEqual([]);
});

test('traces of a month are read from the shard of the workspace', async () => {
  clickhouse = await openDatabase('stored');
  const { database } = postgres;
  await database.execute('INSERT INTO organizations (id, display_name) VALUES ($1, $2)', [nilUuid, 'test']);
  const ids = [...workspaces, deriveUuid('without usage')];
  const stored = await readShards();
  for (const [index, id] of ids.entries()) {
    const values = [id, nilUuid, 'test'];
    await database.execute('INSERT INTO workspaces (id, organization_id, display_name) VALUES ($1, $2, $3)', values);
    await setUsageLimit(database, id, { limit_type: 'monthly_traces', limit_value: 5, is_hard: true });
    const before = countStatements('usage-of-month');
    const { used } = await readUsageState({ database, clickhouse }, id, nowMs);
    // 12 days of March.
    expect(used).toBe(id === ids.at(-1) ? 0 : 12 * 24 * 2 * (index + 1));
    const sent = countStatements('usage-of-month').map((count, server) => count - before[server]!);
    if (stored.has(id)) expect(sent).toEqual([1, 2].map((shard) => (stored.get(id) === shard ? 1 : 0)));
    else expect(sent[0]! + sent[1]!).toBe(1);
  }
});

test('a shard that is added does not change that of a workspace; without a record, the Distributed table is read', async () => {
  clickhouse = await openDatabase('grown');
  const { clickhouseUrl, clickhouseCluster: cluster } = shards.addresses;
  const onAll = (sql: string) => askClickhouseEngine(clickhouseUrl, sql);
  await onAll('CREATE TABLE grown.counts_local (tenant_id UUID, traces UInt32) ENGINE = MergeTree ORDER BY tenant_id');
  await onAll(`CREATE TABLE grown.counts AS grown.counts_local
    ENGINE = Distributed('${cluster}', grown, counts_local, cityHash64(tenant_id) % 1)`);
  const sql = 'INSERT INTO counts SELECT arrayJoin({tenants:Array(UUID)}), 1';
  await clickhouse.command({ name: 'test', sql, params: { tenants: workspaces } });
  const countAll = async () => {
    const before = countStatements('count-traces');
    const tables = new Set<string>();
    for (const tenant of workspaces) {
      const [row] = await clickhouse.query<{ traces: number; source: string }>({
        name: 'count-traces',
        sql: `SELECT sum(traces) AS traces, {stored_counts:String} AS source FROM {stored_counts:Identifier}
          WHERE tenant_id = {tenant:UUID}`,
        params: { tenant },
        ...{ shardTables: ['counts'], shardOf: tenant },
      });
      expect(row?.traces).toBe(1);
      tables.add(row!.source);
    }
    return { tables: [...tables], sent: countStatements('count-traces').map((sent, index) => sent - before[index]!) };
  };
  const warn = vi.spyOn(logger, 'warn');
  expect(await countAll()).toMatchObject({ tables: ['counts'] });
  // Not for each query.
  expect(warn.mock.calls).toEqual([[{ err: expect.any(Error) }, expect.stringContaining('shards')]]);
  await onAll('CREATE TABLE grown.runlake_migrations (shards UInt32) ENGINE = MergeTree ORDER BY shards');
  expect(await countAll()).toMatchObject({ tables: ['counts'] });
  await onAll('INSERT INTO grown.runlake_migrations VALUES (1)');
  expect(await countAll()).toEqual({ tables: ['counts_local'], sent: [workspaces.length, 0] });
});

test('usage of a workspace is read from the Distributed tables if a server does not respond', async () => {
  clickhouse = await openDatabase('stored');
  const plan = planBuckets({ startMs: Date.parse('2026-02-01T00:00:00Z'), endMs: Date.parse('2026-03-01T00:00:00Z') });
  const readAll = () =>
    Promise.all(workspaces.map(async (id) => order(await clickhouse.query(buildUsageQuery(plan, [id], 'project')!))));
  const before = await readAll();
  await proxies[1]!.close();
  expect(await readAll()).toEqual(before);
});
