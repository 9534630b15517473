/**
 * Makes traces longlived, in step 3 of `change-traces.ts`: inserts copies of their rows with the longer lifetime.
 *
 * A copy has the versions of its original, so that merging keeps one row with the same values and the later expiry.
 * Until the rows are merged, the original expires separately, so each run with a row that expires earlier is copied. The
 * copy of a run has its merged values: its first row may name the hour before its trace moved to another, and a copy of
 * this row would count the trace in that hour again. A trace that has already expired stays expired.
 */
import type { ClickHouse, Command, ExternalTable } from '../../infra/clickhouse/clickhouse.ts';
import { findExceededLimit } from '../../infra/clickhouse/clickhouse-error.ts';
import { copySettings } from '../../infra/clickhouse/settings.ts';
import { groupBy } from '../../infra/collections/group-by.ts';
import type { TenantTrace } from '../ingest/run-event/run-event.ts';
import { readLocations, type TraceLocation } from '../ingest/sink/assign-trace-locations.ts';
import { markTracesContested, settleTrace } from '../ingest/sink/settle-traces.ts';
import { locateRunsOfTenants } from '../runs/locate-run.ts';
import { markHoursOfRunsDirty } from '../usage/mark-hours-dirty.ts';
import { computeLifetime, defaultRetention, mergeLifetimes, readRetentions, traceTiers } from './lifetimes.ts';
import type { ChangeDeps, TraceChange } from './request-changes.ts';

const statementTimeoutMs = 3_600_000;

/** Time after which requests are dropped if their traces are still not stored. */
const maxWaitMicros = 86_400_000_000;

/** A request to keep a trace; several requests may name the same trace. */
interface TraceToKeep extends Pick<TraceChange, 'tenantId' | 'projectId' | 'requestedAtMicros' | 'isSecond'> {
  readonly traceId: string;
}

/**
 * Makes the traces of requests longlived.
 *
 * @returns the ids of the requests that do not have to be handled again now.
 * @throws errors of the stores.
 */
export async function keepTraces(
  { clickhouse, database, config }: ChangeDeps,
  changes: readonly TraceChange[],
  signal?: AbortSignal,
): Promise<number[]> {
  if (changes.length === 0) return [];
  const { traces, waiting } = await findTraces(clickhouse, changes);
  const requestsById = groupBy(traces, ({ tenantId, traceId }) => `${tenantId} ${traceId}`);
  const rows: (string | number)[][] = [];
  const located = await readLocations(clickhouse, traces);
  const projectIds = located.map(({ locations }) => (locations as readonly [TraceLocation])[0].projectId);
  const retentions = await readRetentions(database, projectIds);
  for (const { trace, locations } of located) {
    const requests = requestsById.get(`${trace.tenantId} ${trace.traceId}`) as TraceToKeep[];
    const [location] = locations as readonly [TraceLocation];
    if (!requests.some((request) => isEffective(request, location))) continue;
    const { lifetime, traceTimeMicros } = location;
    const retention = { ...(retentions.get(location.projectId) ?? defaultRetention), tier: 'longlived' } as const;
    const { expiresAtSeconds } = mergeLifetimes(lifetime, computeLifetime(config, retention, traceTimeMicros));
    for (const each of locations) rows.push([trace.tenantId, trace.traceId, each.projectId, expiresAtSeconds]);
  }
  if (rows.length > 0) {
    await copyRows({ clickhouse, database }, rows, signal);
    await moveCopies(
      { clickhouse, database },
      located.map(({ trace }) => trace),
    );
  }
  return changes.filter(({ id }) => !waiting.has(id)).map(({ id }) => id);
}

/**
 * Moves the copies of traces that a sink moved to another project or hour while their rows were copied: the copies have
 * the former location.
 */
async function moveCopies(
  { clickhouse, database }: Pick<ChangeDeps, 'clickhouse' | 'database'>,
  traces: readonly TenantTrace[],
): Promise<void> {
  const contested = (await readLocations(clickhouse, traces)).flatMap(({ trace, locations }) =>
    locations.length > 1 ? [trace] : [],
  );
  await markTracesContested(database, contested);
  for (const trace of contested) await settleTrace({ clickhouse, database }, trace, async () => undefined);
}

/** Returns whether a request changes a trace at `location`, which must be its winning location. */
function isEffective(
  { projectId, requestedAtMicros, isSecond }: TraceToKeep,
  { projectId: storedProjectId, lifetime }: TraceLocation,
): boolean {
  if (projectId !== null && projectId !== storedProjectId) return false;
  if (lifetime.expiresAtSeconds * 1_000_000 <= requestedAtMicros) return false;
  return lifetime.tier !== 'longlived' || isSecond;
}

/** Finds the traces of the requests, and the requests whose run is not stored yet. */
async function findTraces(clickhouse: ClickHouse, changes: readonly TraceChange[]) {
  const traces: TraceToKeep[] = [];
  const waiting = new Set<number>();
  const ofRuns = changes.flatMap(({ tenantId, runId }) => (runId === null ? [] : [{ tenantId, runId }]));
  const [located, runsToKeep] = await Promise.all([
    locateRunsOfTenants(clickhouse, ofRuns),
    findRunsToKeep(clickhouse, ofRuns),
  ]);
  const oldestWaitingMicros = Date.now() * 1_000 - maxWaitMicros;
  for (const { id, tenantId, runId, projectId, traceIds, requestedAtMicros, isSecond } of changes) {
    if (runId !== null && !runsToKeep.has(`${tenantId} ${runId}`)) continue;
    const found = runId === null ? undefined : located.get(`${tenantId} ${runId}`);
    if (runId !== null && found === undefined && requestedAtMicros > oldestWaitingMicros) waiting.add(id);
    for (const traceId of found === undefined ? (traceIds ?? []) : [found]) {
      traces.push({ tenantId, traceId, projectId, requestedAtMicros, isSecond });
    }
  }
  return { traces, waiting };
}

/** Returns the runs, as `tenantId runId`, whose feedback extends the retention of their trace. */
async function findRunsToKeep(
  clickhouse: ClickHouse,
  runs: readonly { readonly tenantId: string; readonly runId: string }[],
): Promise<ReadonlySet<string>> {
  if (runs.length === 0) return new Set();
  const rows = await clickhouse.query<{ tenant_id: string; run_id: string }>({
    name: 'find-feedback-that-keeps',
    sql: `SELECT DISTINCT tenant_id, run_id FROM feedback FINAL
          WHERE (tenant_id, run_id) IN keys AND ifNull(keeps_trace, true) AND isNull(deleted_at)`,
    externalTable: {
      name: 'keys',
      structure: 'tenant_id UUID, run_id UUID',
      rows: runs.map(({ tenantId, runId }) => [tenantId, runId]),
    },
  });
  return new Set(rows.map((row) => `${row.tenant_id} ${row.run_id}`));
}

/** Tables with rows of traces, each with the column that contains the trace or run of a row. */
const tables = [
  { table: 'trace_locations', key: 'trace_id', settings: {} },
  { table: 'runs', key: 'trace_id', settings: copySettings },
  { table: 'run_locator', key: 'id', settings: {} },
  { table: 'attachments', key: 'run_id', settings: copySettings },
  { table: 'feedback', key: 'run_id', settings: copySettings },
] as const;

/** With `FINAL`, ClickHouse limits its blocks by rows only. Small runs take four times as long in these blocks. */
const smallBlocks = { max_block_size: '4' } as const;

const keptCondition = `tenant_id IN (SELECT tenant_id FROM kept) AND session_id IN (SELECT session_id FROM kept)
  AND trace_id IN (SELECT trace_id FROM kept) AND (tenant_id, trace_id) IN (SELECT tenant_id, trace_id FROM kept)
  AND start_time >= (SELECT min(first_start) FROM trace_locations WHERE (tenant_id, trace_id) IN (SELECT tenant_id, trace_id FROM kept))
  AND start_time <= (SELECT max(last_start) FROM trace_locations WHERE (tenant_id, trace_id) IN (SELECT tenant_id, trace_id FROM kept))`;

const runExpirySql = `SELECT DISTINCT tenant_id, id AS key, expiry FROM runs INNER JOIN kept USING (tenant_id, trace_id) WHERE ${keptCondition}`;
/** SELECT statements that return the new expiry of rows, by the key column of the table to update. */
const expirySqlByKey = {
  trace_id: 'SELECT DISTINCT tenant_id, trace_id AS key, expiry FROM kept',
  id: runExpirySql,
  run_id: runExpirySql,
} as const;

async function copyRows(
  { clickhouse, database }: Pick<ChangeDeps, 'clickhouse' | 'database'>,
  rows: readonly (readonly (string | number)[])[],
  signal: AbortSignal | undefined,
): Promise<void> {
  const kept: ExternalTable = {
    name: 'kept',
    structure: 'tenant_id UUID, trace_id UUID, session_id UUID, expiry UInt32',
    rows,
  };
  const run = (name: string, sql: string, settings: Command['settings'] = {}) =>
    clickhouse.command({
      name,
      sql,
      settings,
      externalTable: kept,
      profile: 'bulk',
      timeoutMs: statementTimeoutMs,
      signal,
    });
  const tier = traceTiers.longlived;
  await run(
    'mark-kept-traces',
    `INSERT INTO trace_marks (tenant_id, trace_id, trace_tier, expires_at)
     SELECT DISTINCT tenant_id, trace_id, ${tier}, toDateTime(expiry) FROM kept`,
  );
  // In ClickHouse, an unqualified name would be the column with the new value.
  const expiresEarlier = (rows: string) => `(${rows}.expires_at < toDateTime(expiry) OR ${rows}.trace_tier < ${tier})`;
  for (const { table, key, settings } of tables) {
    const storedSql =
      table === 'runs'
        ? `SELECT * FROM runs FINAL WHERE ${keptCondition} AND (tenant_id, id) IN (
             SELECT tenant_id, id FROM runs INNER JOIN kept USING (tenant_id, trace_id) WHERE ${keptCondition} AND ${expiresEarlier('runs')})`
        : `SELECT * FROM ${table} WHERE (tenant_id, ${key}) IN (SELECT tenant_id, key FROM (${expirySqlByKey[key]}))`;
    const insertSql = `INSERT INTO ${table}
       SELECT stored.* REPLACE (${tier} AS trace_tier, toDateTime(expiries.expiry) AS expires_at)
       FROM (${storedSql}) AS stored
       INNER JOIN (${expirySqlByKey[key]}) AS expiries ON stored.tenant_id = expiries.tenant_id AND stored.${key} = expiries.key
       ${table === 'runs' ? '' : `WHERE ${expiresEarlier('stored')}`}`;
    await run(`keep-${table}`, insertSql, settings).catch((error: unknown) => {
      if (findExceededLimit(error) !== 'memory') throw error;
      return run(`keep-${table}`, insertSql, { ...settings, ...smallBlocks });
    });
  }
  // After a crash before this step, the second execution of the request marks the hours.
  await markHoursOfRunsDirty(
    { clickhouse, database },
    {
      sql: `SELECT tenant_id, toStartOfHour(start_time) AS hour FROM runs WHERE ${keptCondition}`,
      externalTable: kept,
      timeoutMs: statementTimeoutMs,
      signal,
    },
  );
}
