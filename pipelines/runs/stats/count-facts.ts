/**
 * Lists the facts of runs by hour in `run_facts`, from which statistics are read.
 *
 * Invariant: an hour whose runs changed after they were last listed is dirty: it has a row in `usage_dirty_hours` or
 * `fact_dirty_hours`. A statistic reads dirty hours from `runs` (`fact-rows.ts`). Code that changes `runs` marks the hours
 * in which the changed runs start, after the change.
 *
 *   1. The usage roll-up moves the hours that it has counted to `fact_dirty_hours`.
 *   2. Minutes after the first mark of an hour, a roll-up run with locks as in `rollup.ts` lists all runs of the hour
 *      again, from merged rows. So an hour that receives runs all the time is listed every few minutes only.
 *      If a roll-up run of a single hour fails, for example because ClickHouse has too little memory for it, the hour is
 *      postponed, so that it does not stop the others.
 *   3. The run deletes the rows that it read. An hour that was marked since then has another sequence number, and stays
 *      dirty.
 *
 * After a crash at any step the hour is still dirty, and listing it again changes nothing.
 */
import type { ClickHouse, Command } from '../../../infra/clickhouse/clickhouse.ts';
import { runOnEachShard } from '../../../infra/clickhouse/layout.ts';
import type { DirtyHour } from '../../../infra/event-log/event-log.ts';
import type { Database, Sql } from '../../../infra/postgres/pool.ts';
import type { Logger } from '../../../infra/telemetry/logger.ts';
import { histogram } from '../../../infra/telemetry/metrics.ts';
import { costExpressions, costSql, selectColumn } from '../../costs/cost-sql.ts';
import { nilUuid } from '../../ingest/run-event/run-event.ts';
import { countDirtyHours, type DirtyHoursSource, isAnyHourDirty, type RollUpOutcome } from '../../usage/dirty-hours.ts';
import { type RollUp, startRollUpLoop } from '../../usage/rollup-loop.ts';
import { dirtyHoursCondition, hourSql, toDirtyHoursTable } from '../../usage/rollup-query.ts';
import { statedAncestorsSql } from '../descendant-figures.ts';
import { isModelCallSql, isRootSql } from '../run-columns.ts';
import { statColumns } from './fact-rows.ts';
import { detailPairsSql, type FigureName, figureValues } from './figure-sums.ts';

const rollUpSeconds = histogram(
  'runlake_fact_roll_up_seconds',
  'Duration of a roll-up run that lists the facts of runs for statistics.',
  [],
  [0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300],
);

interface FactDeps {
  readonly database: Database;
  readonly clickhouse: ClickHouse;
}

export interface FactLimits {
  /** Maximum number of hours per run; further hours stay dirty. */
  readonly hours?: number;
  /** Minimum age of the first dirty mark of an hour before the hour is processed, in seconds. */
  readonly minAgeSeconds?: number;
}

const factDirtyHours: DirtyHoursSource = {
  table: 'fact_dirty_hours',
  order: 'marked_at',
  lockKey: 721_550_844,
  counted: [{ table: 'run_facts', column: 'hour', expression: hourSql }],
};
const defaultMaxHours = 200;
const defaultMinAgeSeconds = 300;
const timeoutMs = 1_800_000;

/** Executes one roll-up run. @throws errors of Postgres or ClickHouse. The hours then stay dirty for the next run. */
export async function runFactRollUp(
  { database, clickhouse }: FactDeps,
  limits: FactLimits = {},
): Promise<RollUpOutcome> {
  const { hours: maxHours = defaultMaxHours, minAgeSeconds = defaultMinAgeSeconds } = limits;
  await markStoredHours({ database, clickhouse });
  const { waitedSeconds: _waited, ...outcome } = await countDirtyHours(
    { database, clickhouse },
    factDirtyHours,
    { hours: maxHours, rows: maxHours, minAgeSeconds },
    async ({ hours }, rollUp) => {
      try {
        await runOnEachShard(clickhouse, (stored, shard) => listRuns(hours, rollUp, stored, shard));
      } catch (error) {
        if (hours.length === 1) await postponeHours(database, hours);
        throw error;
      }
    },
    async ({ hours, sequences }, transaction) => {
      await transaction.query('DELETE FROM fact_dirty_hours WHERE sequence = ANY($1::bigint[])', [sequences]);
      await postponeHours(transaction, hours);
    },
  );
  return outcome;
}

/** Lists hours again after all hours that are dirty now. */
async function postponeHours(database: Pick<Sql, 'query'>, hours: readonly DirtyHour[]): Promise<void> {
  await database.query(
    `UPDATE fact_dirty_hours SET marked_at = clock_timestamp()
     WHERE (tenant_id, hour) IN (SELECT tenant, to_timestamp(seconds) FROM unnest($1::uuid[], $2::bigint[]) AS listed (tenant, seconds))`,
    [hours.map(({ tenantId }) => tenantId), hours.map(({ hourSeconds }) => hourSeconds)],
  );
}

/**
 * Marks all hours of stored runs dirty if the migration asks for it, by a row that stands for all hours. While it exists,
 * statistics do not use `run_facts`.
 */
async function markStoredHours({ database, clickhouse }: FactDeps): Promise<void> {
  const unknown = await database.query('SELECT 1 FROM fact_dirty_hours WHERE tenant_id = $1', [nilUuid]);
  if (unknown.length === 0) return;
  const hours = await clickhouse.query<{ tenant_id: string; hour_seconds: number }>({
    name: 'list-stored-hours',
    sql: 'SELECT DISTINCT tenant_id, toUnixTimestamp(toStartOfHour(start_time)) AS hour_seconds FROM runs',
    timeoutMs,
  });
  await database.transaction(async (transaction) => {
    await transaction.query(
      `INSERT INTO fact_dirty_hours (tenant_id, hour)
       SELECT tenant, to_timestamp(seconds) FROM unnest($1::uuid[], $2::bigint[]) AS stored (tenant, seconds)
       ORDER BY 1, 2 ON CONFLICT (tenant_id, hour) DO UPDATE SET sequence = DEFAULT`,
      [hours.map(({ tenant_id }) => tenant_id), hours.map(({ hour_seconds }) => hour_seconds)],
    );
    await transaction.query('DELETE FROM fact_dirty_hours WHERE tenant_id = $1', [nilUuid]);
  });
}

const startHour = 'toStartOfHour(start_time)';
const dirtyRunsCondition = dirtyHoursCondition(startHour, hourSql);

/** Values of the lists `runs` and `calls`, as SQL over `runs FINAL`. */
const runValues = {
  ...statColumns,
  is_root: isRootSql,
  expires_at: 'expires_at',
};
/** The list `calls.stated` is no longer used; ClickHouse fills it with zeros. */
const callValues = (ancestors: string) => ({
  id: 'id',
  trace_id: 'trace_id',
  expires_at: 'expires_at',
  ancestors,
  ...figureValues,
  details: detailPairsSql,
});
type CallValues = ReturnType<typeof callValues>;

/** Maximum number of calls of a trace that are summed here, because they are compared pair by pair. */
const maxSummedCalls = 100;

/**
 * Values of the list `traces`, as SQL over `summed_calls`, the array of the calls of a trace, which are tuples of call values.
 * A call is covered if a call below it states the same figure or the same kind of detail.
 */
function buildTraceValues(calls: CallValues) {
  const at = (name: keyof CallValues) => Object.keys(calls).indexOf(name) + 1;
  const isBelow = `has(below.${at('ancestors')}, call.${at('id')})`;
  const sum = (name: FigureName) => {
    const value = at(name);
    const isCovered = `arrayExists(below -> isNotNull(below.${value}) AND ${isBelow}, summed_calls)`;
    return `arrayReduce('sum', arrayMap(call -> if(is_nested AND ${isCovered}, NULL, call.${value}), summed_calls))`;
  };
  const details = at('details');
  const hasKind = `arrayExists(other -> other.1 = pair.1, below.${details})`;
  const isPairCovered = `is_nested AND arrayExists(below -> ${isBelow} AND ${hasKind}, summed_calls)`;
  return {
    id: 'trace_id',
    expires_at: 'trace_expiry',
    ...(Object.fromEntries(Object.keys(figureValues).map((name) => [name, sum(name as FigureName)])) as Record<
      FigureName,
      string
    >),
    details: `arrayFlatten(arrayMap(call -> arrayFilter(pair -> NOT (${isPairCovered}), call.${details}), summed_calls))`,
  };
}

/**
 * Builds the statement that lists the runs of the dirty hours which are stored on one shard. Hours of projects that have
 * no runs any more get empty lists.
 *
 * An event marks the hours of its trace and of its run, so the hour of a trace is listed again when the trace gets a call in
 * another hour. `trace_locations` has the first and last start of the runs of a trace that state figures.
 */
function listRuns(
  hours: readonly DirtyHour[],
  rollUp: number,
  stored: (table: string) => string,
  shard: number,
): Command {
  const isCall = `ifNull(isNull(deleted_at) AND ${isModelCallSql}, false)`;
  const runs = `${stored('runs')} FINAL PREWHERE ${dirtyRunsCondition}`;
  const others = `SELECT tenant_id, session_id, ${startHour}, id FROM ${runs} WHERE NOT ${isCall}`;
  const ancestors = `arrayFilter(ancestor -> (tenant_id, session_id, ${startHour}, ancestor) NOT IN (${others}), ${statedAncestorsSql})`;
  const spanning = `SELECT tenant_id, trace_id FROM ${stored('trace_locations')}
    WHERE ${dirtyHoursCondition('toStartOfHour(trace_time)', hourSql)}
    GROUP BY tenant_id, trace_id HAVING toStartOfHour(min(first_usage)) != toStartOfHour(max(last_usage))`;
  const calls = callValues(ancestors);
  const traces = buildTraceValues(calls);
  const columns = (list: string, values: object) => Object.keys(values).map((name) => `\`${list}.${name}\``);
  const elements = (list: string, values: object) => Object.keys(values).map((_name, at) => `${list}.${at + 1}`);
  return {
    name: 'list-run-facts',
    sql: `INSERT INTO run_facts (tenant_id, session_id, hour, shard, roll_up, expires_at,
  ${[...columns('runs', runValues), ...columns('traces', traces), ...columns('calls', calls)].join(', ')})
SELECT tenant_id, session_id, hour, {shard:UInt16}, {rollUp:UInt64}, latest,
  ${[...elements('listed_runs', runValues), ...elements('listed_traces', traces), ...elements('listed_calls', calls)].join(', ')}
FROM (
  SELECT tenant_id, session_id, hour, max(last_expiry) AS latest, groupArrayArray(hour_runs) AS listed_runs,
    groupArrayArray(hour_traces) AS listed_traces, groupArrayArray(hour_calls) AS listed_calls
  FROM (
    SELECT tenant_id, session_id, hour, max(trace_expiry) AS last_expiry, groupArrayArray(some_runs) AS hour_runs,
      groupArrayIf(trace, notEmpty(summed_calls)) AS hour_traces, groupArrayArray(other_calls) AS hour_calls
    FROM (
      SELECT *, (${Object.values(traces).join(', ')}) AS trace
      FROM (
        SELECT *, is_native AND length(some_calls) <= ${maxSummedCalls} AND (tenant_id, trace_id) NOT IN (${spanning}) AS is_contained,
          if(is_contained, some_calls, []) AS summed_calls, if(is_contained, [], some_calls) AS other_calls,
          arrayExists(call -> notEmpty(call.${Object.keys(calls).indexOf('ancestors') + 1}), summed_calls) AS is_nested
        FROM (
          SELECT tenant_id, session_id, ${startHour} AS hour, trace_id, max(expires_at) AS trace_expiry,
            min(${startHour} = toStartOfHour(trace_time)) AS is_native,
            groupArrayIf(run, is_kept) AS some_runs, groupArrayIf(call, is_call) AS some_calls
          FROM (
            WITH ${costExpressions}
            SELECT tenant_id, session_id, start_time, trace_id, trace_time, expires_at, isNull(deleted_at) AS is_kept, ${isCall} AS is_call,
              ${Object.keys(costSql).map(selectColumn).join(', ')},
              (${Object.values(runValues).join(', ')}) AS run, (${Object.values(calls).join(', ')}) AS call
            FROM ${runs}
          )
          GROUP BY tenant_id, session_id, hour, trace_id
        )
      )
    )
    GROUP BY tenant_id, session_id, hour
    UNION ALL
    SELECT tenant_id, session_id, hour, expires_at, [], [], []
    FROM run_facts
    WHERE ${dirtyHoursCondition('hour', hourSql)} AND shard = {shard:UInt16}
  )
  GROUP BY tenant_id, session_id, hour
)`,
    params: { rollUp, shard },
    externalTable: toDirtyHoursTable(hours),
    profile: 'bulk',
    timeoutMs,
  };
}

export interface FactRollUpOptions extends FactDeps {
  /** Maximum time between two checks for dirty hours, in milliseconds. */
  readonly intervalMs: number;
  readonly logger: Logger;
}

export function startFactRollUp({ intervalMs, logger, ...deps }: FactRollUpOptions): RollUp {
  return startRollUpLoop({
    name: 'fact roll-up',
    run: async (hours) => {
      const observe = rollUpSeconds.startTimer();
      const outcome = await runFactRollUp(deps, hours === undefined ? {} : { hours });
      if (outcome.outcome === 'counted') observe();
      return outcome;
    },
    hasWork: () => isAnyHourDirty(deps.database, factDirtyHours, defaultMinAgeSeconds),
    maxHours: defaultMaxHours,
    intervalMs,
    logger,
  });
}
