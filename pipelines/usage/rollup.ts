/**
 * One roll-up run: counts every dirty hour again from all its traces.
 *
 * Invariant: an hour whose traces changed after it was last counted is dirty (has a row in `usage_dirty_hours`). After
 * a crash at any step, the next roll-up run finds the remaining rows and counts the same hours again; counting an hour
 * twice changes nothing.
 *
 * The workspaces are divided into groups, so that several processes can each count some of them at the same time:
 *
 *   1. Take the advisory lock of the group with the oldest dirty hour that no other roll-up run has locked. If there is
 *      none, return `busy`.
 *   2. Read the dirty hours of the group. Repeat 1 and 2 until the run has many hours. An hour marked dirty from here on
 *      stays dirty for the next run.
 *   3. Take the run's number from a sequence, under the locks, so that a later run of a group always has a higher number
 *      and its rows replace the rows of earlier runs. If the sequence is behind the stored rows, raise it.
 *   4. Count, on all shards at the same time: each inserts, from the traces that it stores, a new row for each dirty hour
 *      and dimension, which replaces its previous one. After a crash in this step the hours are still dirty; rows already
 *      written are correct and are written again. If a count outlives its process, the rows that it writes later have a
 *      lower `roll_up` than the rows of the next run, and do not replace them.
 *   5. Sum the days of those hours again from all their hours. A crash in this step has the same effect as in step 4.
 *      Until this step is done, reports by day differ from reports by hour.
 *   6. In a transaction, delete exactly the `usage_dirty_hours` rows that were read, by their sequence numbers, and mark
 *      their hours dirty for the facts of runs (`pipelines/runs/stats/count-facts.ts`). Then release the locks. After a
 *      crash before the commit, the hours are counted again.
 *
 * The locks belong to the connection and not to a transaction: no transaction is open while ClickHouse counts, which can
 * take minutes. If the connection breaks, Postgres releases the locks, another run may count the same hours, and step 6 of
 * this run fails.
 */
import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { runOnEachShard } from '../../infra/clickhouse/layout.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import { counter, histogram, scrapedGauge } from '../../infra/telemetry/metrics.ts';
import { countDirtyHours, type DirtyHoursSource, isAnyHourDirty, type RollUpOutcome } from './dirty-hours.ts';
import { type RollUp, startRollUpLoop } from './rollup-loop.ts';
import { countHours, daySql, hourSql, sumDays } from './rollup-query.ts';

const rollUpSeconds = histogram(
  'runlake_usage_roll_up_seconds',
  'Duration of a usage roll-up run, by outcome: counted, idle (no dirty hours), busy (another process runs one), failed.',
  ['outcome'],
  [0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100],
);

const countedHours = counter(
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

/** Returns the age of the oldest dirty hour in seconds. The query costs one index lookup. */
export async function readOldestDirtyHourAge(database: Pick<Database, 'query'>): Promise<number> {
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
  /** Maximum number of distinct hours per run; further hours stay dirty. Default: {@link defaultMaxHours}. */
  readonly hours?: number;
  /** Maximum number of `usage_dirty_hours` rows that are read. Default: 200,000. */
  readonly dirtyHours?: number;
  /** Timeout of each ClickHouse statement, in milliseconds. Default: 10 minutes. */
  readonly timeoutMs?: number;
}

/** Default maximum number of distinct hours per roll-up run. */
const defaultMaxHours = 20_000;

const usageDirtyHours: DirtyHoursSource = {
  table: 'usage_dirty_hours',
  order: 'sequence',
  lockKey: 721_550_843,
  counted: [
    { table: 'usage_hourly', column: 'hour', expression: hourSql },
    { table: 'usage_daily', column: 'day', expression: daySql },
  ],
};

/** Performs step 6: the hours become dirty for the facts of runs, which are counted later. */
const finishHoursSql = `
  WITH counted AS (DELETE FROM usage_dirty_hours WHERE sequence = ANY($1::bigint[]) RETURNING tenant_id, hour)
  INSERT INTO fact_dirty_hours (tenant_id, hour) SELECT DISTINCT tenant_id, hour FROM counted ORDER BY tenant_id, hour
  ON CONFLICT (tenant_id, hour) DO UPDATE SET sequence = DEFAULT`;

/** Executes one roll-up run. @throws errors of Postgres or ClickHouse. The hours then stay dirty for the next run. */
export async function runRollUp(deps: RollUpDeps, limits: RollUpLimits = {}): Promise<RollUpOutcome> {
  const { hours: maxHours = defaultMaxHours, dirtyHours: maxRows = 200_000, timeoutMs = 600_000 } = limits;
  const startedAtMs = performance.now();
  const { waitedSeconds, ...outcome } = await countDirtyHours(
    deps,
    usageDirtyHours,
    { hours: maxHours, rows: maxRows, minAgeSeconds: 0 },
    async ({ hours }, rollUp) => {
      await runOnEachShard(deps.clickhouse, (stored, shard) => ({
        ...countHours(hours, rollUp, { traces: stored('traces'), shard }),
        timeoutMs,
      }));
      await deps.clickhouse.command({ ...sumDays(hours, rollUp), timeoutMs });
    },
    async ({ sequences }, transaction) => void (await transaction.query(finishHoursSql, [sequences])),
  );
  if (outcome.outcome === 'counted') delaySeconds.observe(waitedSeconds + (performance.now() - startedAtMs) / 1_000);
  return outcome;
}

/** Returns whether any hour is dirty. The query costs one index lookup. */
export function hasDirtyHours(database: Pick<Database, 'query'>): Promise<boolean> {
  return isAnyHourDirty(database, usageDirtyHours);
}

export interface RollUpOptions extends RollUpDeps {
  /** Maximum time between two checks for dirty hours, in milliseconds. */
  readonly intervalMs: number;
  readonly logger: Logger;
  readonly limits?: RollUpLimits;
}

export function startRollUp({ database, clickhouse, intervalMs, logger, limits = {} }: RollUpOptions): RollUp {
  const loop = startRollUpLoop({
    name: 'usage roll-up',
    run: async (hours) => {
      const observe = rollUpSeconds.startTimer();
      let outcome: RollUpOutcome['outcome'] | 'failed' = 'failed';
      try {
        const result = await runRollUp({ database, clickhouse }, { ...limits, ...(hours && { hours }) });
        outcome = result.outcome;
        countedHours.inc(result.hours);
        return result;
      } finally {
        observe({ outcome });
      }
    },
    hasWork: () => hasDirtyHours(database),
    maxHours: limits.hours ?? defaultMaxHours,
    intervalMs,
    logger,
  });
  const removeMetricReader = oldestDirtyHourAge.setReader(() => readOldestDirtyHourAge(database));
  return {
    ...loop,
    stop: async () => {
      await loop.stop();
      removeMetricReader();
    },
  };
}
