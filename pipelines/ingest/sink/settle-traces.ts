/**
 * Moves traces whose events were stored under several trace locations to one of these locations.
 *
 * A sink determines the location of an unknown trace from the events that it has seen. Two sinks that handle events of
 * one trace at the same time, for example after partitions were added, may determine different locations.
 *
 * Invariant: a stating event is an event that names the project itself. Among the locations of a trace, the location of
 * the stating event with the lowest version wins. When every insert has been followed by steps 1 to 3, all events of a
 * trace are at this location.
 *
 *   1. After an insert, the sink reads the locations of the traces whose location it has just determined. If two sinks
 *      determine a location at the same time, at least the sink whose insert ends last finds both locations. It
 *      writes the trace to `contested_traces` in Postgres.
 *   2. After every insert, each sink looks for the traces of its batch in `contested_traces`. An insert that uses an
 *      outdated location either ends before step 3 of another sink, which then moves its rows, or finds the trace
 *      here.
 *   3. Under a lock on the entry of the trace, the sink copies the rows to the winning location, with the longest
 *      lifetime of all locations, copies attachments and feedback that would expire before their runs, deletes the rows
 *      elsewhere, and uses them to fill the derived tables again. It then inserts its own events again, because another
 *      sink may have deleted them before it took the lock, and marks the hours of all locations and of the runs dirty.
 *      All of this can be repeated: rows keep their versions, and each deletion is followed by an insert of the rows
 *      that are still valid.
 *   4. The sink commits the offset only after step 3, so after a crash the batch is repeated and the conflict is found
 *      again.
 */
import type { ClickHouse, QueryParameter } from '../../../infra/clickhouse/clickhouse.ts';
import { deleteRows } from '../../../infra/clickhouse/delete-rows.ts';
import { copySettings } from '../../../infra/clickhouse/settings.ts';
import type { Database, Sql } from '../../../infra/postgres/pool.ts';
import { mergeLifetimes, traceTiers } from '../../retention/lifetimes.ts';
import { markHoursDirty, markHoursOfRunsDirty } from '../../usage/mark-hours-dirty.ts';
import type { TenantTrace } from '../run-event/run-event.ts';
import { hourSeconds } from '../run-event/times.ts';
import { readLocations, type TraceLocation } from './assign-trace-locations.ts';

/**
 * Timeout of each statement. A statement that searches runs for a trace reads the index of all runs of their projects, which
 * takes longer than a minute for a billion runs, and the batch would be repeated without end.
 */
const statementTimeoutMs = 600_000;

/** Returns whether any trace is contested. Contested traces are rare. */
export async function hasContestedTraces(database: Sql): Promise<boolean> {
  return (await database.query('SELECT FROM contested_traces LIMIT 1')).length > 0;
}

/**
 * Deletes the entries that were last renewed before `before`. `before` must be at least two days ago, see
 * `TraceLocationCache`.
 */
export async function deleteContestedTraces(database: Sql, before: Date): Promise<void> {
  await database.query('DELETE FROM contested_traces WHERE noticed_at < $1', [before.toISOString()]);
}

export async function findContestedTraces(database: Sql, traces: readonly TenantTrace[]): Promise<TenantTrace[]> {
  return database.query<TenantTrace>(
    `SELECT tenant_id AS "tenantId", trace_id AS "traceId" FROM contested_traces
     WHERE (tenant_id, trace_id) IN (SELECT * FROM unnest($1::uuid[], $2::uuid[]))`,
    [traces.map(({ tenantId }) => tenantId), traces.map(({ traceId }) => traceId)],
  );
}

/**
 * Records traces as contested, or renews their entries. Every sink that reads the table afterwards finds them. The order
 * prevents deadlocks of two sinks.
 */
export async function markTracesContested(database: Sql, traces: readonly TenantTrace[]): Promise<void> {
  if (traces.length === 0) return;
  await database.query(
    `INSERT INTO contested_traces (tenant_id, trace_id)
     SELECT DISTINCT * FROM unnest($1::uuid[], $2::uuid[]) ORDER BY 1, 2
     ON CONFLICT (tenant_id, trace_id) DO UPDATE SET noticed_at = now()`,
    [traces.map(({ tenantId }) => tenantId), traces.map(({ traceId }) => traceId)],
  );
}

/**
 * Performs step 3 for one contested trace.
 *
 * @param insertBatchEvents Inserts the events of the sink's batch at the winning location.
 * @returns the winning location, with the longest lifetime of all locations of the trace.
 * @throws errors of the stores; a retry completes the work.
 */
export async function settleTrace(
  { clickhouse, database }: { readonly clickhouse: ClickHouse; readonly database: Database },
  trace: TenantTrace,
  insertBatchEvents: (winner: TraceLocation) => Promise<unknown>,
): Promise<TraceLocation | undefined> {
  return database.transaction(async (transaction) => {
    await transaction.query('SELECT FROM contested_traces WHERE tenant_id = $1 AND trace_id = $2 FOR UPDATE', [
      trace.tenantId,
      trace.traceId,
    ]);
    const [found] = await readLocations(clickhouse, [trace]);
    const [first, ...losers] = found?.locations ?? [];
    if (first === undefined) return undefined;
    const lifetime = losers.reduce((longest, loser) => mergeLifetimes(longest, loser.lifetime), first.lifetime);
    const winner = { ...first, lifetime };
    if (losers.length > 0 && (await hasMisplacedRows(clickhouse, trace, winner, losers))) {
      await moveTrace(clickhouse, trace, winner, losers);
    }
    await insertBatchEvents(winner);
    await markHoursDirty(
      transaction,
      toHourSeconds([winner, ...losers]).map((seconds) => ({ tenantId: trace.tenantId, hourSeconds: seconds })),
    );
    // A moved run keeps its start.
    const sql = `SELECT tenant_id, toStartOfHour(start_time) AS hour FROM runs WHERE tenant_id = {tenant:UUID} AND trace_id = {trace:UUID}`;
    const params = { tenant: trace.tenantId, trace: trace.traceId };
    await markHoursOfRunsDirty({ clickhouse, database: transaction }, { sql, params, timeoutMs: statementTimeoutMs });
    return winner;
  });
}

const toHourSeconds = (locations: readonly TraceLocation[]) =>
  locations.map(({ traceTimeMicros }) => hourSeconds(traceTimeMicros));

/**
 * Returns whether rows of the trace are at a location other than the winning one, or missing there because a move ended
 * between its deletions and its refill.
 */
async function hasMisplacedRows(
  clickhouse: ClickHouse,
  { tenantId, traceId }: TenantTrace,
  winner: TraceLocation,
  losers: readonly TraceLocation[],
): Promise<boolean> {
  const storedIdsSql = `SELECT DISTINCT id FROM runs
    WHERE tenant_id = {tenant:UUID} AND trace_id = {trace:UUID} AND session_id IN {projects:Array(UUID)}`;
  const [row] = await clickhouse.query<{ rows: number }>({
    name: 'count-misplaced-rows',
    sql: `WITH fromUnixTimestamp64Micro({micros:Int64}) AS winning_time
      SELECT (
        SELECT count() FROM runs FINAL
        WHERE tenant_id = {tenant:UUID} AND trace_id = {trace:UUID} AND session_id IN {projects:Array(UUID)}
          AND (session_id, trace_time) != ({project:UUID}, winning_time)
      ) + (
        SELECT count() FROM traces
        WHERE tenant_id = {tenant:UUID} AND trace_id = {trace:UUID} AND hour IN {hours:Array(DateTime('UTC'))}
          AND (hour, pick.3) != (toStartOfHour(winning_time), {project:UUID})
      ) + (
        SELECT count() FROM run_locator
        WHERE tenant_id = {tenant:UUID} AND pick.3 = {trace:UUID} AND (pick.4, pick.5) != (winning_time, {project:UUID})
          AND id IN (${storedIdsSql})
      ) + (
        SELECT count() FROM (${storedIdsSql})
        WHERE id NOT IN (SELECT id FROM run_locator WHERE tenant_id = {tenant:UUID} AND id IN (${storedIdsSql}))
      ) + (
        SELECT count() = 0 FROM traces
        WHERE tenant_id = {tenant:UUID} AND trace_id = {trace:UUID} AND hour = toStartOfHour(winning_time)
      ) AS rows`,
    params: {
      tenant: tenantId,
      trace: traceId,
      project: winner.projectId,
      micros: winner.traceTimeMicros,
      projects: [winner, ...losers].map(({ projectId }) => projectId),
      hours: toHourSeconds([winner, ...losers]),
    },
    timeoutMs: statementTimeoutMs,
  });
  return row !== undefined && row.rows > 0;
}

/** Maximum number of ids per statement, because ClickHouse limits the size of a parameter. */
const maxIdsPerStatement = 2_000;
/** Versions are subtracted from this value: a lower version gives a higher rank, which wins in `runs`. */
const maxVersion = (1n << 64n) - 1n;

async function moveTrace(
  clickhouse: ClickHouse,
  { tenantId, traceId }: TenantTrace,
  winner: TraceLocation,
  losers: readonly TraceLocation[],
): Promise<void> {
  const params = {
    tenant: tenantId,
    trace: traceId,
    project: winner.projectId,
    micros: winner.traceTimeMicros,
    rank: String(maxVersion - winner.version),
    version: String(winner.version),
    tier: traceTiers[winner.lifetime.tier],
    expires: winner.lifetime.expiresAtSeconds,
  };
  const otherProjects = losers.map(({ projectId }) => projectId).filter((id) => id !== winner.projectId);
  const bulk = { profile: 'bulk', timeoutMs: statementTimeoutMs } as const;
  const copyRows = (name: string, sql: string, more: Readonly<Record<string, QueryParameter>>) =>
    clickhouse.command({ name, sql, params: { ...params, ...more }, settings: copySettings, ...bulk });
  const deleteMovedRows = (table: string, condition: string, more: Readonly<Record<string, QueryParameter>>) =>
    deleteRows(clickhouse, {
      name: `delete-moved-${table}`,
      table,
      condition,
      params: { ...params, ...more },
      timeoutMs: statementTimeoutMs,
    });
  const traceCondition = 'tenant_id = {tenant:UUID} AND trace_id = {trace:UUID}';
  const traceTimeSql = 'fromUnixTimestamp64Micro({micros:Int64})';
  const projects = { projects: [winner.projectId, ...otherProjects] };
  const ids = await clickhouse.query<{ id: string }>({
    name: 'list-runs-to-move',
    sql: `SELECT DISTINCT id FROM runs WHERE ${traceCondition} AND session_id IN {projects:Array(UUID)}`,
    params: { ...params, ...projects },
    timeoutMs: statementTimeoutMs,
  });
  await copyRows(
    'move-runs',
    `INSERT INTO runs SELECT * REPLACE ({project:UUID} AS session_id, ({rank:UInt64}, ${traceTimeSql}) AS ranked_trace_time,
       {version:UInt64} AS location_version, {tier:UInt8} AS trace_tier, toDateTime({expires:UInt32}) AS expires_at)
     FROM runs WHERE ${traceCondition} AND session_id IN {projects:Array(UUID)}`,
    projects,
  );
  for (let at = 0; at < ids.length; at += maxIdsPerStatement) {
    const some = { ids: ids.slice(at, at + maxIdsPerStatement).map(({ id }) => id) };
    for (const table of ['attachments', 'feedback']) {
      // In ClickHouse, an unqualified name would be the column with the new value.
      await copyRows(
        `keep-${table}-of-moved-trace`,
        `INSERT INTO ${table} SELECT * REPLACE ({tier:UInt8} AS trace_tier, toDateTime({expires:UInt32}) AS expires_at)
         FROM ${table} WHERE tenant_id = {tenant:UUID} AND run_id IN {ids:Array(UUID)} AND ${table}.expires_at < toDateTime({expires:UInt32})`,
        some,
      );
    }
    await deleteMovedRows(
      'run_locator',
      `tenant_id = {tenant:UUID} AND id IN {ids:Array(UUID)} AND pick.3 = {trace:UUID} AND (pick.4, pick.5) != (${traceTimeSql}, {project:UUID})`,
      some,
    );
  }
  await deleteMovedRows(
    'traces',
    `${traceCondition} AND (hour, pick.3) != (toStartOfHour(${traceTimeSql}), {project:UUID})
     AND hour IN {hours:Array(DateTime('UTC'))}`,
    { hours: toHourSeconds([winner, ...losers]) },
  );
  if (otherProjects.length > 0) {
    await deleteMovedRows('runs', `${traceCondition} AND session_id IN {others:Array(UUID)}`, {
      others: otherProjects,
    });
  }
  const refillSql = `${refillRunKeysSql} WHERE ${traceCondition} AND session_id = {project:UUID}`;
  await clickhouse.command({ name: 'refill-moved-trace', sql: refillSql, params, ...bulk });
}

/**
 * SQL that inserts the keys of stored runs into `run_keys` again, so that its views fill the tables derived from runs.
 * Repeated rows are harmless.
 */
const refillRunKeysSql = `INSERT INTO run_keys
  (tenant_id, session_id, start_time, trace_id, id, trace_time, location_version, trace_tier, expires_at, received_at, user_id, key_id,
  usage_time)
SELECT tenant_id, session_id, start_time, trace_id, id, trace_time, location_version, trace_tier, expires_at, sender.1, sender.2, sender.3,
  if(states_usage, start_time, NULL)
FROM runs FINAL`;
