/**
 * One roll-up run: counts every dirty hour again from all its traces.
 *
 * Invariant: an hour whose traces changed after it was last counted is dirty (has a row in `usage_dirty_hours`). After a
 * crash at any step, the remaining rows lead the next roll-up run to the same hours, and counting an hour twice changes
 * nothing.
 *
 * All steps are in one Postgres transaction:
 *   1. Take the advisory lock, so that only one roll-up run at a time runs over all processes. A process that does not
 *      get the lock returns `busy`.
 *   2. Take the run's number from a sequence, under the lock: a later run always has a higher number, and its
 *      rows win.
 *   3. Read the dirty hours, up to a limit. An hour marked dirty from here on stays dirty for the next run.
 *   4. Count: insert a new row for each dirty hour and dimension, which replaces the previous one. After a crash in
 *      this step the hours are still dirty; rows already written are correct and are written again. If a count outlives
 *      its process, the rows it writes later have a lower `roll_up` and lose.
 *   5. Sum the days of those hours again from all their hours. After a crash, as in step 4. Until this step is done,
 *      reports by day differ from reports by hour.
 *   6. Record the days as changed by this run (`usage-changes.ts`), delete exactly the `usage_dirty_hours` rows that were
 *      read, by their sequence numbers, and commit. After a crash before the commit, the hours are counted again.
 */
import type { ClickHouse, Command, ExternalTable } from '../../infra/clickhouse/clickhouse.ts';
import type { DirtyHour } from '../../infra/event-log/event-log.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import { counter, histogram, scrapedGauge } from '../../infra/telemetry/metrics.ts';
import { recordChanges } from './mark-hours-dirty.ts';

export const rollUpSeconds = histogram(
  'runlake_usage_roll_up_seconds',
  'Duration of a usage roll-up run, by outcome: counted, idle (no dirty hours), busy (another process runs one), failed.',
  ['outcome'],
  [0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100],
);

export const countedHours = counter(
  'runlake_usage_hours_counted_total',
  'Hours counted by the usage roll-up, one for each workspace and count.',
  [],
);

const delaySeconds = histogram(
  'runlake_usage_delay_seconds',
  'Delay of the usage roll-up: time from the oldest dirty mark of a roll-up run until its hours are counted.',
  [],
  [0.1, 0.3, 0.5, 1, 2, 5, 10, 30, 60, 300, 1_800],
);

export const oldestDirtyHourAge = scrapedGauge(
  'runlake_usage_oldest_dirty_hour_age_seconds',
  'Age of the oldest dirty hour that is not counted yet; 0 if there is none.',
  [],
);

export const readReports = counter(
  'runlake_usage_reports_total',
  'Usage reports answered, by source: clickhouse, or memory if their counts had not changed.',
  ['source'],
);

/** Costs one index lookup. */
export async function ageOfOldestDirtyHour(database: Pick<Database, 'query'>): Promise<number> {
  const [oldest] = await database.query<{ seconds: number }>(
    `SELECT greatest(0, extract(epoch FROM clock_timestamp() - marked_at))::float8 AS seconds
     FROM usage_dirty_hours ORDER BY sequence LIMIT 1`,
  );
  return oldest?.seconds ?? 0;
}

export interface RollUpDeps {
  readonly database: Database;
  readonly clickhouse: ClickHouse;
}

export interface RollUpLimits {
  /** Maximum number of distinct hours per run; the others stay dirty. Default {@link defaultMaxHours}. */
  readonly hours?: number;
  /** Maximum number of `usage_dirty_hours` rows read. Default 200,000. */
  readonly dirtyHours?: number;
  /** Timeout of each ClickHouse statement, in milliseconds. Default 10 minutes. */
  readonly timeoutMs?: number;
}

export interface RollUpOutcome {
  /** `busy`: another process holds the lock. `idle`: no hour is dirty. */
  readonly outcome: 'counted' | 'idle' | 'busy';
  readonly hours: number;
  /** Whether a limit was reached, so that dirty hours may be left. */
  readonly more: boolean;
}

/** Default maximum of distinct hours per roll-up run. */
export const defaultMaxHours = 20_000;

/** Advisory lock key; no other lock in this database uses it. */
const lockKey = 7_215_508_431;

/**
 * Executes one roll-up run.
 *
 * @throws errors of Postgres or ClickHouse. The hours then stay dirty for the next run.
 */
export async function runRollUp(deps: RollUpDeps, limits: RollUpLimits = {}): Promise<RollUpOutcome> {
  const { hours: maxHours = defaultMaxHours, dirtyHours: maxDirtyHours = 200_000, timeoutMs = 600_000 } = limits;
  const startedAtMs = performance.now();
  let maxWaitSeconds = 0;
  const outcome = await deps.database.transaction<RollUpOutcome>(async (transaction) => {
    // The transaction is idle while ClickHouse counts, and must not be ended for that.
    await transaction.query('SET LOCAL idle_in_transaction_session_timeout = 0');
    const [lock] = await transaction.query<{ held: boolean }>('SELECT pg_try_advisory_xact_lock($1) AS held', [
      lockKey,
    ]);
    if (!lock?.held) return { outcome: 'busy', hours: 0, more: false };

    const dirtyHours = await transaction.query<DirtyHourRow>(readDirtyHoursSql, [maxDirtyHours, maxHours]);
    if (dirtyHours.length === 0) return { outcome: 'idle', hours: 0, more: false };
    const [next] = await transaction.query<{ rollUp: number }>(`SELECT nextval('usage_roll_up') AS "rollUp"`);

    const hours = dirtyHours.map(({ tenant_id, hour_seconds }) => ({ tenantId: tenant_id, hourSeconds: hour_seconds }));
    await deps.clickhouse.command({ ...countHours(hours, next!.rollUp), timeoutMs });
    await deps.clickhouse.command({ ...sumDays(hours, next!.rollUp), timeoutMs });

    await recordChanges(transaction, hours, next!.rollUp);
    // Sorted oldest first.
    maxWaitSeconds = dirtyHours[0]!.waited_seconds;
    const sequences = dirtyHours.flatMap(({ sequences }) => sequences);
    await transaction.query('DELETE FROM usage_dirty_hours WHERE sequence = ANY($1::bigint[])', [sequences]);
    return {
      outcome: 'counted',
      hours: hours.length,
      more: hours.length >= maxHours || sequences.length >= maxDirtyHours,
    };
  });
  if (outcome.outcome === 'counted') {
    delaySeconds.observe(maxWaitSeconds + (performance.now() - startedAtMs) / 1_000);
  }
  return outcome;
}

/** Whether any hour is dirty. Costs one index lookup. */
export async function hasDirtyHours(database: Pick<Database, 'query'>): Promise<boolean> {
  return (await database.query('SELECT 1 FROM usage_dirty_hours ORDER BY sequence LIMIT 1')).length > 0;
}

interface DirtyHourRow {
  readonly tenant_id: string;
  readonly hour_seconds: number;
  readonly sequences: string[];
  /** Age of its oldest row when the transaction began. */
  readonly waited_seconds: number;
}

const readDirtyHoursSql = `
  SELECT tenant_id, extract(epoch FROM hour)::bigint AS hour_seconds, array_agg(sequence::text) AS sequences,
    greatest(0, extract(epoch FROM now() - min(marked_at)))::float8 AS waited_seconds
  FROM (SELECT sequence, tenant_id, hour, marked_at FROM usage_dirty_hours ORDER BY sequence LIMIT $1) AS oldest
  GROUP BY tenant_id, hour
  ORDER BY min(sequence)
  LIMIT $2`;

/** The dirty hours as an external table, because a list of keys in the statement would have a size limit. */
function dirtyHours(hours: readonly DirtyHour[]): ExternalTable {
  return {
    name: 'dirty_hours',
    // Not a DateTime: ClickHouse parses short numbers in a DateTime column as other formats.
    structure: 'tenant_id UUID, hour_seconds UInt32',
    rows: hours.map(({ tenantId, hourSeconds }) => [tenantId, hourSeconds]),
  };
}

/** ClickHouse can use the sorting key only for the first two conditions, each on one column. */
const dirtyHoursCondition = (column: string, ofSeconds: string) => `tenant_id IN (SELECT tenant_id FROM dirty_hours)
      AND ${column} IN (SELECT ${ofSeconds} FROM dirty_hours)
      AND (tenant_id, ${column}) IN (SELECT tenant_id, ${ofSeconds} FROM dirty_hours)`;

/**
 * Step 4. Reads the facts once for all dimensions. The second half of the UNION gives empty lists to an hour that has
 * no traces any more. `pick` is read by position, because under FINAL a subcolumn read by name returns unmerged rows.
 */
export function countHours(hours: readonly DirtyHour[], rollUp: number): Command {
  return {
    name: 'count-usage-hours',
    sql: `INSERT INTO usage_hourly (tenant_id, dimension, hour, ids, traces, roll_up)
SELECT tenant_id, entry.1, hour, entry.2.1, entry.2.2, {rollUp:UInt64}
FROM (
  SELECT tenant_id, hour, sumMap(workspaces, ones) AS by_workspace, sumMap(projects, ones) AS by_project,
    sumMap(users, ones) AS by_user, sumMap(api_keys, ones) AS by_key
  FROM (
    SELECT tenant_id, hour, [tenant_id] AS workspaces, [pick.3] AS projects, [pick.4] AS users, [pick.5] AS api_keys,
      [toUInt64(1)] AS ones
    FROM traces FINAL
    WHERE ${dirtyHoursCondition('hour', "toDateTime(hour_seconds, 'UTC')")}
    UNION ALL
    SELECT tenant_id, toDateTime(hour_seconds, 'UTC'), [], [], [], [], [] FROM dirty_hours
  )
  GROUP BY tenant_id, hour
)
ARRAY JOIN [('workspace', by_workspace), ('project', by_project), ('user', by_user), ('api_key', by_key)] AS entry`,
    params: { rollUp },
    external: dirtyHours(hours),
    profile: 'recount',
  };
}

/** Step 5. */
export function sumDays(hours: readonly DirtyHour[], rollUp: number): Command {
  return {
    name: 'sum-usage-days',
    sql: `INSERT INTO usage_daily (tenant_id, dimension, day, ids, traces, roll_up)
SELECT tenant_id, dimension, day, counted.1, counted.2, {rollUp:UInt64}
FROM (
  SELECT tenant_id, dimension, toDate(hour) AS day, sumMap(ids, traces) AS counted
  FROM usage_hourly FINAL
  WHERE ${dirtyHoursCondition('toDate(hour)', "toDate(toDateTime(hour_seconds, 'UTC'))")}
  GROUP BY tenant_id, dimension, day
)`,
    params: { rollUp },
    external: dirtyHours(hours),
    profile: 'recount',
  };
}
