/** The same work has the same results on one ClickHouse server and on a cluster of two servers. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type ClickHouse, openClickHouse } from '../../../infra/clickhouse/client.ts';
import { readLayout } from '../../../infra/clickhouse/layout.ts';
import { migrate } from '../../../infra/migrations/migrate.ts';
import type { Database } from '../../../infra/postgres/pool.ts';
import { findChunk } from '../../../pipelines/exports/chunk-reader.ts';
import { countMembers } from '../../../pipelines/exports/members.ts';
import { nilUuid, type RunEvent } from '../../../pipelines/ingest/run-event/run-event.ts';
import { deleteProjectRuns } from '../../../pipelines/projects/delete-projects.ts';
import { changeTraces } from '../../../pipelines/retention/change-traces.ts';
import { readDiskUse } from '../../../pipelines/retention/disk-use.ts';
import { requestDeletion, requestKeep } from '../../../pipelines/retention/request-changes.ts';
import { findPage } from '../../../pipelines/runs/find-page.ts';
import { locateRuns } from '../../../pipelines/runs/locate-run.ts';
import { buildUsageQuery } from '../../../pipelines/usage/report-query.ts';
import { runRollUp } from '../../../pipelines/usage/rollup.ts';
import { planBuckets } from '../../../pipelines/usage/rollup-query.ts';
import { runEvents } from '../../../schemas/topics.ts';
import { askClickhouseEngine, withDatabase } from '../../engines/ask-engines.ts';
import { listTenantTables, storedBytes } from '../../engines/on-stored-table.ts';
import { type DedicatedShards, startDedicatedShards } from '../../engines/own-shards.ts';
import { type FreshStores, freshStores } from '../../engines/stores.ts';
import { folderForSuite } from '../../folders.ts';
import { wholeDay } from '../../pipelines/exports/exporting.ts';
import { openDrivenSink } from '../../pipelines/ingest/sink/driven-sink.ts';
import { framed } from '../../pipelines/ingest/sink/sink-under-test.ts';
import {
  deriveUuid,
  insertEvents,
  json,
  noonMicros,
  otherProjectId,
  projectId,
  runEvent,
  tenantId,
} from '../../pipelines/runs/run-events.ts';
import { logger } from '../../silent-logger.ts';
import { openTcpProxy } from '../tcp-proxy.ts';

const folder = folderForSuite();
let shards: DedicatedShards;
let single: FreshStores;
let both: FreshStores;

beforeAll(async () => {
  shards = await startDedicatedShards(folder, 2);
  // Each of them has its own Postgres databases.
  const [one, postgres] = [await freshStores(), await freshStores()];
  single = one;
  const { clickhouseCluster: cluster } = shards.addresses;
  await askClickhouseEngine(shards.addresses.clickhouseUrl, 'CREATE DATABASE both ENGINE = Atomic');
  const url = withDatabase(shards.addresses.clickhouseUrl, 'both');
  const clickhouse = openClickHouse({ url, cluster, logger, timeoutMs: 60_000 });
  both = { ...postgres, clickhouseUrl: url, clickhouse };
  await migrate({ clickhouse, database: postgres.database, logger });
});

afterAll(async () => {
  await both?.clickhouse.close();
  await Promise.all([single?.close(), both?.close(), shards?.stop()]);
});

interface Row {
  readonly trace_tier?: number;
}

const traces = 60;
const metadataOf = (trace: number) => json({ metadata: { customer: `of trace ${trace % 20}` } });
/** Tables whose rows expire with their trace, and columns that identify a row. */
const keyColumns = {
  runs: 'id',
  run_locator: 'id',
  trace_locations: 'trace_id, session_id, trace_time',
  trace_marks: 'trace_id',
  attachments: 'run_id, content',
  feedback: 'run_id, id',
};

/** Creates a post and a patch for each run; traces have three runs and belong to two projects. */
const storedLog = { position: async () => ({}), isStored: async () => true };

function makeEvents(): RunEvent[] {
  return Array.from({ length: traces }, (_, trace) => {
    const traceId = deriveUuid('trace', trace);
    return [traceId, deriveUuid('child', trace), deriveUuid('second child', trace)].flatMap((runId, index) => {
      const startTimeMicros = noonMicros + trace * 60_000_000 + index;
      const event = { traceId, runId, startTimeMicros, traceTimeMicros: noonMicros + trace * 60_000_000 };
      const own = trace % 3 === 0 ? otherProjectId : projectId;
      const shared = { ...event, projectId: own, userId: deriveUuid('user', trace % 4) };
      return [
        runEvent({ ...shared, values: { name: `run ${trace}`, inputs: json(index), extra: metadataOf(trace) } }),
        runEvent({ ...shared, kind: 'patch', values: { outputs: json({ index }) } }),
      ];
    });
  }).flat();
}

/** Creates events of one trace for which two sinks choose different projects. */
function makeContestedEvents(): RunEvent[] {
  const traceId = deriveUuid('contested');
  return [otherProjectId, projectId].map((project, index) =>
    runEvent({
      ...{ traceId, runId: index === 0 ? traceId : deriveUuid('child of contested'), projectId: project },
      ...{ traceTimeMicros: noonMicros + index * 3_600_000_000, values: { name: `of ${index}` } },
    }),
  );
}

/** Long enough for traces of a fixed day in the past. */
const config = { retentionShortlivedDays: 20_000, retentionLonglivedDays: 25_000 };

async function addProjects(database: Database): Promise<void> {
  await database.execute('INSERT INTO organizations (id, display_name) VALUES ($1, $2)', [nilUuid, 'test']);
  await database.execute('INSERT INTO workspaces (id, organization_id, display_name) VALUES ($1, $2, $3)', [
    ...[tenantId, nilUuid, 'test'],
  ]);
  const projects = { [projectId]: 'shortlived', [otherProjectId]: 'longlived' };
  for (const [id, tier] of Object.entries(projects)) {
    await database.execute('INSERT INTO projects (id, workspace_id, name, trace_tier) VALUES ($1, $2, $3, $4)', [
      ...[id, tenantId, id, tier],
    ]);
  }
}

/** Inserts an attachment and a feedback entry for each run; both of them expire with the run. */
async function insertDependentRows(clickhouse: ClickHouse): Promise<void> {
  const expiry = 'trace_tier, expires_at, tenant_id, id';
  await clickhouse.command({
    name: 'test',
    sql: `INSERT INTO attachments (version, trace_tier, expires_at, tenant_id, run_id, name, received_at, mime_type, content)
      SELECT 1, ${expiry}, 'notes', now(), 'text/plain', toString(id) FROM runs FINAL`,
  });
  await clickhouse.command({
    name: 'test',
    sql: `INSERT INTO feedback (version, trace_tier, expires_at, tenant_id, run_id, id, received_at, key, source_type,
        user_id, created_at, modified_at)
      SELECT 1, ${expiry}, id, now(), 'good', 'api', id, now(), now() FROM runs FINAL`,
  });
}

/** Keeps every tenth trace and deletes every tenth trace; the second call does the same again. */
async function keepAndDeleteTraces({ clickhouse, database }: FreshStores): Promise<void> {
  const every = (rest: number) =>
    Array.from({ length: traces }, (_, trace) => trace).flatMap((trace) =>
      trace % 10 === rest && trace % 3 !== 0 ? [deriveUuid('trace', trace)] : [],
    );
  await requestKeep(database, tenantId, { projectId, traceIds: every(1) });
  await requestDeletion(database, tenantId, { projectId, traceIds: every(2) });
  await requestDeletion(database, tenantId, { projectId, metadata: { customer: 'of trace 4' } });
  for (let time = 0; time < 2; time++) {
    await changeTraces({ clickhouse, database, log: storedLog, config });
    await database.execute('UPDATE trace_changes SET due_at = now()');
  }
}

async function runScenario(stores: FreshStores) {
  const { clickhouse, database } = stores;
  await addProjects(database);
  const toRecords = (events: readonly RunEvent[], first: number) =>
    events.map((event, index) => ({
      ...{ partition: 0, offset: first + index, key: `${event.tenantId}:${event.traceId}`, value: framed(event) },
      ...{ headers: {}, version: BigInt(first + index + 1) },
    }));
  const sinks = await Promise.all([0, 1].map(() => openDrivenSink({ stores, config, isShared: true })));
  const records = toRecords(makeEvents(), 0);
  const contested = toRecords(makeContestedEvents(), records.length);
  // Every record goes twice through both sinks; of the contested trace, each sink stores another event first.
  await Promise.all(
    sinks.map(async (sink, index) => {
      await sink.deliver(runEvents, [contested[index]!]);
      for (let at = 0; at < records.length; at += 50) await sink.deliver(runEvents, records.slice(at, at + 50));
    }),
  );
  for (const sink of sinks) await sink.deliver(runEvents, contested);
  for (const sink of sinks) await sink.close();

  await runRollUp({ clickhouse, database });
  const noonMs = noonMicros / 1_000;
  const plan = planBuckets({ startMs: noonMs - 43_200_000, endMs: noonMs + 86_400_000 });
  const usage = async () => {
    const query = buildUsageQuery(plan, [tenantId], 'project')!;
    return clickhouse.query({
      ...query,
      sql: `SELECT bucket, arraySort(arrayZip(ids, traces)) AS counts FROM (${query.sql}) ORDER BY bucket`,
    });
  };
  const rows = (table: string, columns: string) =>
    clickhouse.query<Row>({ name: 'test', sql: `SELECT ${columns} FROM ${table} FINAL ORDER BY ALL` });
  const scope = { tenantId, projectIds: [projectId, otherProjectId] };
  const found = {
    runs: await rows('runs', 'id, session_id, trace_time, name, inputs, outputs'),
    traces: await rows('traces', 'trace_id, hour, pick'),
    locations: await rows('trace_locations', 'trace_id, session_id, version'),
    spans: await rows('trace_locations', 'trace_id, first_start, last_start, first_usage, last_usage'),
    located: (
      await locateRuns(
        clickhouse,
        tenantId,
        records.map((_, i) => deriveUuid('child', i)),
      )
    ).sort((one, other) => one.runId.localeCompare(other.runId)),
    page: await findPage(clickhouse, { scope, filter: {}, order: 'desc', limitRows: 25, after: undefined }),
    newest: await findPage(clickhouse, {
      ...{ scope: { tenantId, projectIds: [projectId] }, filter: {}, order: 'desc', limitRows: 7, after: undefined },
    }),
    chunk: await findChunk(clickhouse, wholeDay, undefined, { rows: 40, bytes: 1e9 }),
    members: await countMembers(clickhouse, wholeDay),
    usage: await usage(),
  };
  await insertDependentRows(clickhouse);
  await keepAndDeleteTraces(stores);
  const tables = Object.entries(keyColumns).map(
    async ([table, key]) =>
      [table, await rows(table, `${key}, trace_tier, toUnixTimestamp(expires_at) AS expiry`)] as const,
  );
  const changed = {
    changed: Object.fromEntries(await Promise.all(tables)),
    contents: await rows('runs', 'id, name, inputs, outputs'),
    disk: await readDiskUse({ clickhouse, database }),
    bytes: await storedBytes(
      clickhouse,
      (await listTenantTables(clickhouse)).map(({ table }) => table),
    ),
  };
  await database.execute('UPDATE projects SET deleted_at = now() WHERE id = $1', [otherProjectId]);
  await deleteProjectRuns({ ...stores, log: storedLog }, { workspaceId: tenantId, projectId: otherProjectId });
  return { ...found, ...changed, left: await rows('runs', 'id'), usageAfterDeletion: await usage() };
}

test('runs, locators, usage, pages, chunks, kept and deleted traces, disk use and a deletion', async () => {
  const [{ disk: diskOfOne, bytes: _, ...one }, { disk: diskOfTwo, bytes, ...two }] = [
    await runScenario(single),
    await runScenario(both),
  ];
  expect(two).toEqual(one);
  expect(one.runs).toHaveLength(traces * 3 + 2);
  expect(one.traces).toHaveLength(traces + 1);
  // Of the 40 traces of the first project, 4 are kept and 6 are deleted; 2 of the deletions are by metadata.
  const { runs, run_locator, trace_marks, attachments, feedback } = one.changed;
  for (const rows of [runs, run_locator, feedback]) expect(rows).toHaveLength((traces - 6) * 3 + 2);
  // A kept attachment is also in the partition of its former expiry.
  expect(attachments).toHaveLength((traces - 6) * 3 + 2 + 4 * 3);
  // One mark for each of these traces, and one for each child run of the deleted ones.
  expect(trace_marks).toHaveLength(10 + 6 * 2);
  expect(runs!.filter((run) => run.trace_tier === 2)).toHaveLength((20 + 4) * 3 + 2);
  expect(one.left).toHaveLength((40 - 6) * 3);
  const tiers = (uses: typeof diskOfOne) => uses.map(({ tier }) => tier).sort();
  expect(tiers(diskOfTwo)).toEqual(tiers(diskOfOne));
  // Merges may end between the two measurements. A single shard has about half of the bytes.
  expect(diskOfTwo.reduce((sum, use) => sum + use.bytes, 0) / bytes).toBeGreaterThan(0.75);
  expect(diskOfTwo.reduce((sum, use) => sum + use.bytes, 0) / bytes).toBeLessThan(1.33);
  // Both shards store traces, and no run is stored on both.
  const stored = await Promise.all(
    both.clickhouse.servers.map((server) =>
      server.query<{ id: string }>({ name: 'test', sql: 'SELECT DISTINCT id FROM runs_local' }),
    ),
  );
  expect(stored.every((ids) => ids.length > 10)).toBe(true);
  expect(new Set(stored.flat().map(({ id }) => id)).size).toBe(stored.flat().length);
});

test('a cluster has one layout, and migrations refuse another one or a server that is not listed', async () => {
  expect(await readLayout(both.clickhouse)).toMatchObject({
    kind: 'cluster',
    shards: 2,
    replicas: 1,
    hasKeeper: false,
  });
  const [first = ''] = both.clickhouseUrl.split(',');
  const { clickhouseCluster: cluster } = shards.addresses;
  const attempt = async (url: string, name: string | undefined, database: string) => {
    await askClickhouseEngine(shards.addresses.clickhouseUrl, `CREATE DATABASE IF NOT EXISTS ${database}`);
    const clickhouse = openClickHouse({ url: withDatabase(url, database), cluster: name, logger, timeoutMs: 10_000 });
    const run = migrate({ clickhouse, database: both.database, logger });
    return run
      .then(
        () => 'migrated',
        (error: Error) => error.message,
      )
      .finally(() => clickhouse.close());
  };
  expect(await attempt(first, cluster, 'partial')).toMatch(/lacks a server of the cluster .*replica 1 of shard 2/);
  expect(await attempt(both.clickhouseUrl, 'none', 'partial')).toMatch(/no cluster named 'none'/);
  expect(await attempt(`${both.clickhouseUrl},http://u:p@127.0.0.1:9/x`, cluster, 'partial')).toMatch(
    /need every ClickHouse server/,
  );
});

test('queries are spread over the servers', async () => {
  const { clickhouseCluster: cluster = '' } = shards.addresses;
  const servers: number[] = [];
  for (let query = 0; query < 4; query++) {
    const sql = 'SELECT shard_num AS shard FROM system.clusters WHERE cluster = {cluster:String} AND is_local';
    servers.push(
      ...(await both.clickhouse.query<{ shard: number }>({ name: 'test', sql, params: { cluster } })).map(
        ({ shard }) => shard,
      ),
    );
  }
  expect(servers.toSorted()).toEqual([1, 1, 2, 2]);
});

test('a query goes to another server if one does not respond', async () => {
  const { clickhouseCluster: cluster } = shards.addresses;
  const url = `http://u:p@127.0.0.1:9/both,${both.clickhouseUrl}`;
  const clickhouse = openClickHouse({ url, cluster, logger, timeoutMs: 10_000 });
  for (let query = 0; query < 4; query++) {
    expect(await clickhouse.query({ name: 'test', sql: 'SELECT 1 AS one' })).toEqual([{ one: 1 }]);
  }
  await clickhouse.close();
});

const countOnShards = {
  name: 'test',
  shardTables: ['runs'],
  // Merges change the number of rows.
  sql: 'SELECT toUInt32(uniqExact(id)) AS rows FROM {stored_runs:Identifier}',
};

test('a query of the tables of each shard returns the rows of all, also if a server does not respond', async () => {
  const count = async (clickhouse: ClickHouse) =>
    (await clickhouse.query<{ rows: number }>(countOnShards)).map(({ rows }) => rows);
  await insertEvents(
    both.clickhouse,
    Array.from({ length: 40 }, () => runEvent()),
  );
  const counts = await count(both.clickhouse);
  expect(counts).toHaveLength(2);
  expect(counts.every((rows) => rows > 0)).toBe(true);
  const [first = ''] = both.clickhouseUrl.split(',');
  for (const url of [`http://u:p@127.0.0.1:9/both,${both.clickhouseUrl}`, `${first},http://u:p@127.0.0.1:9/both`]) {
    const clickhouse = openClickHouse({ ...{ url, logger }, cluster: both.clickhouse.cluster!, timeoutMs: 10_000 });
    for (let query = 0; query < 2; query++) expect(await count(clickhouse)).toEqual([counts[0]! + counts[1]!]);
    await clickhouse.close();
  }
});

test('a query of the tables of each shard that loses a server reads the Distributed tables', async () => {
  const [first = '', second = ''] = both.clickhouseUrl.split(',');
  const { hostname, port } = new URL(second);
  const proxy = await openTcpProxy(hostname, Number(port));
  const url = `${first},${Object.assign(new URL(second), { port: String(proxy.port) }).href}`;
  const clickhouse = openClickHouse({ ...{ url, logger }, cluster: both.clickhouse.cluster!, timeoutMs: 10_000 });
  const divided = await clickhouse.query<{ rows: number }>(countOnShards);
  expect(divided).toHaveLength(2);
  await proxy.close();
  const rows = divided.reduce((sum, each) => sum + each.rows, 0);
  expect(await clickhouse.query(countOnShards)).toEqual([{ rows }]);
  await clickhouse.close();
});

test('a query of the tables of each shard ends on all if it is aborted or fails on one', async () => {
  const { clickhouse } = both;
  const marker = 'aborted on all shards';
  const sql = `SELECT sleepEachRow(1), '${marker}' FROM numbers(100)`;
  const params = { text: `%${marker}' FROM numbers(100)%` };
  const slow = { ...countOnShards, sql, settings: { max_block_size: '1' } };
  const countRunning = async () => {
    const running = await Promise.all(
      clickhouse.servers.map(({ query }) =>
        query({ name: 'test', sql: 'SELECT query FROM system.processes WHERE query LIKE {text:String}', params }),
      ),
    );
    return running.map((queries) => queries.length);
  };
  const abort = new AbortController();
  const aborted = clickhouse.query({ ...slow, signal: abort.signal });
  await expect.poll(countRunning, { timeout: 10_000 }).toEqual([1, 1]);
  abort.abort(new Error('left'));
  await expect(aborted).rejects.toThrow('left');
  await expect.poll(countRunning, { timeout: 10_000 }).toEqual([0, 0]);

  const isFirst = `(SELECT max(shard_num = 1 AND is_local) FROM system.clusters WHERE cluster = '${clickhouse.cluster}')`;
  const failing = clickhouse.query({ ...slow, sql: `${slow.sql} WHERE throwIf(${isFirst} AND number = 2) = 0` });
  await expect(failing).rejects.toMatchObject({ code: 'CLICKHOUSE_QUERY_FAILED' });
  await expect.poll(countRunning, { timeout: 10_000 }).toEqual([0, 0]);
});
