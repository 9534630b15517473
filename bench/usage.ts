/**
 * What the roll-up is worth: a month of usage by project over HTTP, against the same request answered by counting the
 * distinct traces of that month.
 *
 * 1,000,000 traces of three runs each over three months, 20 projects, 50 users, 100 keys (each of one user), inserted in the
 * order of time in twenty pieces, straight into `runs`, from where the views fill `traces`. Then everything is rolled up.
 *
 * Three servers answer the same request, in turns, so that all meet the same machine, and have to answer the same bytes:
 * the product; one that counts distinct traces in `runs`, as a product without a roll-up would (`ratio`); and one that counts
 * them in `traces`, which has one row a trace already (`ratio_over_trace_table`). Keep-alive, key, names from Postgres
 * and JSON are the same for all; the cache of query conditions is off for all.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { Agent, get, type IncomingMessage } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { getGranularUsage } from '../api/main/billing/granular-usage.ts';
import { buildServer } from '../api/server/build-server.ts';
import type { Services } from '../api/server/services.ts';
import { openWarehouse } from '../infra/clickhouse/client.ts';
import type { Query, Warehouse } from '../infra/clickhouse/warehouse.ts';
import { loadConfig } from '../infra/config/load.ts';
import { openDataFolder } from '../infra/embedded/data-folder.ts';
import { startEmbedded } from '../infra/embedded/start.ts';
import { migrate } from '../infra/migrations/migrate.ts';
import { openDatabase } from '../infra/postgres/pool.ts';
import { createLogger } from '../infra/telemetry/logger.ts';
import { createAuthenticator } from '../pipelines/tenants/authenticate.ts';
import { bootstrap } from '../pipelines/tenants/bootstrap.ts';
import { noteHours } from '../pipelines/usage/note-hours.ts';
import { rollUpPass } from '../pipelines/usage/roll-up-pass.ts';

const traces = 1_000_000;
const runsPerTrace = 3;
const pieces = 20;
const startSeconds = Date.UTC(2026, 0, 1) / 1_000;
const days = 90;
const month = { start: '2026-02-01T00:00:00Z', end: '2026-03-01T00:00:00Z' };
const rounds = 60;
const requestsPerRound = 5;
const target = 8;
/** What ClickHouse may not remember from one repetition to the next. */
const fresh = { use_query_condition_cache: 0 } as const;

/** The same columns as the product's own query gives, under its own parameters. */
const counting = {
  runs: `SELECT intDiv(toUnixTimestamp(trace_time) - {origin:UInt32}, {stride:UInt32}) AS bucket, session_id AS id,
      uniqExact(trace_id) AS counted
    FROM runs
    WHERE tenant_id IN {workspaces:Array(UUID)}
      AND trace_time >= toDateTime({start:UInt32}, 'UTC') AND trace_time < toDateTime({end:UInt32}, 'UTC')
      AND start_time >= toDateTime({start:UInt32}, 'UTC') AND start_time < toDateTime({end:UInt32} + 86400, 'UTC')
    GROUP BY bucket, id`,
  traces: `SELECT intDiv(toUnixTimestamp(hour) - {origin:UInt32}, {stride:UInt32}) AS bucket, pick.3 AS id,
      uniqExact(trace_id) AS counted
    FROM traces FINAL
    WHERE tenant_id IN {workspaces:Array(UUID)}
      AND hour >= toDateTime({start:UInt32}, 'UTC') AND hour < toDateTime({end:UInt32}, 'UTC')
    GROUP BY bucket, id`,
} as const;

const logger = createLogger('warn', 'bench');
const path = mkdtempSync(join(tmpdir(), 'runlake-bench-'));
const folder = await openDataFolder(path);
const engines = await startEmbedded({ folder, needs: { clickhouse: true, database: true }, logger });
const timeoutMs = 600_000;
const warehouse = withoutCaches(openWarehouse({ url: String(engines.clickhouseUrl), logger, timeoutMs }));
const database = openDatabase({ url: String(engines.databaseUrl), logger, timeoutMs });
try {
  await migrate({ warehouse, database, logger });
  const { key, workspaceId } = await addNames();
  const insertSeconds = await timed(() => insertRuns(workspaceId));
  const rollUpSeconds = await timed(async () => {
    while ((await rollUpPass({ database, warehouse })).more);
  });
  const figures = await measure(key, workspaceId);
  console.log(
    JSON.stringify({
      bench: 'usage',
      ratio: round(figures.runsMs / figures.httpMs),
      target,
      higher_is_better: true,
      p50_ms: round(figures.httpMs),
      p99_ms: round(figures.httpP99Ms),
      p50_target_ms: 50,
      p50_counting_runs_ms: round(figures.runsMs),
      p50_counting_trace_table_ms: round(figures.tracesMs),
      ratio_over_trace_table: round(figures.tracesMs / figures.httpMs),
      traces,
      runs: traces * runsPerTrace,
      insert_seconds: round(insertSeconds),
      roll_up_seconds: round(rollUpSeconds),
    }),
  );
} finally {
  await warehouse.close();
  await database.close();
  await engines.stop();
  await folder.close();
  rmSync(path, { recursive: true, force: true });
}

function withoutCaches(inner: Warehouse): Warehouse {
  return {
    ...inner,
    query: <Row>(query: Query) => inner.query<Row>({ ...query, settings: { ...query.settings, ...fresh } }),
  };
}

/** Organisation, workspace and key of a first start, and names for all that the traces will be of. */
async function addNames(): Promise<{ key: string; workspaceId: string }> {
  const key = `bench-${randomBytes(16).toString('hex')}`;
  await bootstrap(database, { ...loadConfig({}).config, bootstrapApiKey: key });
  const [workspace] = await database.query<{ id: string; organization_id: string }>(
    'SELECT id, organization_id FROM workspaces',
  );
  const { id: workspaceId, organization_id: organizationId } = workspace!;
  await database.execute(
    `INSERT INTO projects (id, workspace_id, name) SELECT md5('project ' || n)::uuid, $1, 'project ' || n FROM generate_series(0, 19) n`,
    [workspaceId],
  );
  await database.execute(
    `INSERT INTO users (id, organization_id, email)
     SELECT md5('user ' || n)::uuid, $1, 'user' || n || '@bench.example' FROM generate_series(0, 49) n`,
    [organizationId],
  );
  await database.execute(
    `INSERT INTO api_keys (id, organization_id, user_id, hash, short_key, description, permissions)
     SELECT md5('key ' || n)::uuid, $1, md5('user ' || n % 50)::uuid, sha256(('key ' || n)::bytea), 'key' || n, 'bench', '{}'
     FROM generate_series(0, 99) n`,
    [organizationId],
  );
  return { key, workspaceId };
}

/** One `INSERT … SELECT` a piece; the hours are noted as the sink would. */
async function insertRuns(workspaceId: string): Promise<void> {
  const id = (text: string) => `toUUID(lower(hex(MD5(${text}))))`;
  for (let piece = 0; piece < pieces; piece++) {
    await warehouse.command({
      name: 'bench-insert',
      sql: `INSERT INTO runs (tenant_id, session_id, start_time, trace_id, id, trace_time, first_received_at, user_id, key_id)
        WITH intDiv(number, ${runsPerTrace}) AS trace, number % ${runsPerTrace} AS step,
          fromUnixTimestamp64Micro(toInt64(({start:UInt64} + trace * ${days * 86_400} / ${traces}) * 1000000)) AS began,
          ${id("concat('trace ', toString(trace))")} AS trace_id,
          cityHash64(trace, 'key') % 100 AS key
        SELECT {tenant:UUID}, ${id("concat('project ', toString(cityHash64(trace, 'project') % 20))")},
          began + toIntervalMillisecond(step * 400), trace_id,
          if(step = 0, trace_id, ${id("concat('run ', toString(number))")}), began, began + toIntervalMillisecond(500),
          ${id("concat('user ', toString(key % 50))")}, ${id("concat('key ', toString(key))")}
        FROM numbers({first:UInt64}, {count:UInt64})`,
      params: {
        tenant: workspaceId,
        start: startSeconds,
        first: (piece * traces * runsPerTrace) / pieces,
        count: (traces * runsPerTrace) / pieces,
      },
    });
  }
  await noteHours(
    database,
    Array.from({ length: days * 24 }, (_, hour) => ({
      tenantId: workspaceId,
      hourSeconds: startSeconds + hour * 3_600,
    })),
  );
}

async function measure(key: string, workspaceId: string) {
  const query = new URLSearchParams({
    start_time: month.start,
    end_time: month.end,
    workspace_ids: workspaceId,
    group_by: 'project',
  });
  const agent = new Agent({ keepAlive: true });
  const servers = [await serve(), await serve(counting.runs), await serve(counting.traces)];
  const times: number[][] = servers.map(() => []);
  const answers = new Set<string>();
  for (let done = -5; done < rounds; done++) {
    for (const [place, { address }] of servers.entries()) {
      const url = `${address}/api/v1/orgs/current/billing/granular-usage?${query}`;
      for (let sent = 0; sent < (place === 0 ? requestsPerRound : 1); sent++) {
        const seconds = await timed(async () => answers.add(await body(url, key, agent)));
        if (done >= 0) times[place]?.push(seconds * 1_000);
      }
    }
  }
  agent.destroy();
  for (const { close } of servers) await close();
  assert.equal(answers.size, 1, 'the answers differ');
  const [http = [], runs = [], traces = []] = times;
  return {
    httpMs: quantile(http, 0.5),
    httpP99Ms: quantile(http, 0.99),
    runsMs: quantile(runs, 0.5),
    tracesMs: quantile(traces, 0.5),
  };
}

/** A server with the one operation; given SQL, it answers from that instead of the product's own. */
async function serve(sql?: string) {
  const config = loadConfig({}).config;
  const authenticator = createAuthenticator({ database, logger });
  const answering: Warehouse =
    sql === undefined ? warehouse : { ...warehouse, query: (query) => warehouse.query({ ...query, sql }) };
  const services = { config, database, warehouse: answering, authenticator } as Partial<Services> as Services;
  const server = await buildServer({ config, services, logger, operations: [getGranularUsage] });
  const address = await server.listen({ host: '127.0.0.1', port: 0 });
  const close = async () => {
    await server.drain();
    await authenticator.close();
  };
  return { address, close };
}

async function body(url: string, key: string, agent: Agent): Promise<string> {
  const [response] = (await once(get(url, { agent, headers: { 'x-api-key': key } }), 'response')) as [IncomingMessage];
  const chunks: Buffer[] = [];
  for await (const chunk of response) chunks.push(chunk as Buffer);
  const text = Buffer.concat(chunks).toString('utf8');
  assert.equal(response.statusCode, 200, text);
  return text;
}

async function timed(work: () => Promise<unknown>): Promise<number> {
  const startMs = performance.now();
  await work();
  return (performance.now() - startMs) / 1_000;
}

function quantile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? Number.NaN;
}

function round(value: number): number {
  return Math.round(value * 100) / 100;
}
