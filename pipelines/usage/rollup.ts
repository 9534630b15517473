/**
 * One roll-up run: counts every dirty hour again from all its traces.
 *
 * Invariant: an hour whose traces changed after it was last counted is dirty (has a row in `usage_dirty_hours`). After
 * a crash at any step, the next roll-up run finds the remaining rows and counts the same hours again; counting an hour
 * twice changes nothing.
 *
 * The workspaces are divided into groups, so that several processes can each count some of them at the same time:
 *
 *   1. Begin a transaction and take the advisory lock of the group with the oldest dirty hour that no other roll-up run
 *      has locked. If there is none, return `busy`.
 *   2. Read the dirty hours of the group. Repeat 1 and 2 up to the limit of hours. An hour marked dirty from here on
 *      stays dirty for the next run.
 *   3. Take the run's number from a sequence, under the locks, so that a later run of a group always has a higher number
 *      and its rows replace the rows of earlier runs.
 *   4. Count, on all shards at the same time: each inserts, from the traces that it stores, a new row for each dirty hour
 *      and dimension, which replaces its previous one. After a crash in this step the hours are still dirty; rows already
 *      written are correct and are written again. If a count outlives its process, the rows that it writes later have a
 *      lower `roll_up` than the rows of the next run, and do not replace them.
 *   5. Sum the days of those hours again from all their hours. A crash in this step has the same effect as in step 4.
 *      Until this step is done, reports by day differ from reports by hour.
 *   6. Delete exactly the `usage_dirty_hours` rows that were read, by their sequence numbers, and commit, which releases
 *      the locks. After a crash before the commit, the hours are counted again.
 *
 * The transaction writes nothing before step 6, so Postgres can vacuum while ClickHouse counts.
 *
 * The loop around roll-up runs:
 *
 * Invariant: while dirty hours exist and both engines are available, roll-up runs continue; never two at a time in this
 * process (the advisory locks exclude other processes).
 *
 *   1. If the loop was not woken, check whether any hour is dirty; if none, continue with 4. An idle loop does nothing
 *      but this check.
 *   2. Execute a roll-up run. After a failure the hours stay dirty: back off exponentially and continue with 1.
 *   3. Pause, so that a stream of wakes causes few runs with many hours each.
 *   4. Sleep until the loop is woken or the interval is over; if a limit left dirty hours, do not sleep.
 *
 * On stop, a running roll-up run finishes, and no other starts.
 */
import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { runOnEachShard } from '../../infra/clickhouse/layout.ts';
import type { Database, Sql } from '../../infra/postgres/pool.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import { counter, histogram, scrapedGauge } from '../../infra/telemetry/metrics.ts';
import { pause } from '../../infra/timeouts/backoff.ts';
import { countHours, sumDays } from './rollup-query.ts';

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

export interface RollUpOutcome {
  /** `busy`: another process holds the lock. `idle`: no hour is dirty. */
  readonly outcome: 'counted' | 'idle' | 'busy';
  readonly hours: number;
  /** Whether a limit was reached, in which case dirty hours may be left. */
  readonly more: boolean;
}

/** Default maximum number of distinct hours per roll-up run. */
const defaultMaxHours = 20_000;

/**
 * First key of the advisory locks of groups; the second key is the group. No other lock in this database uses this
 * first key.
 */
const groupLockKey = 721_550_843;

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
    // The transaction is idle while ClickHouse counts; Postgres must not end it for that reason.
    await transaction.query('SET LOCAL idle_in_transaction_session_timeout = 0');
    const { outcome, dirtyHours, more } = await lockDirtyHours(transaction, { maxHours, maxDirtyHours });
    if (outcome !== 'counted') return { outcome, hours: 0, more: false };
    // This query is not in the transaction, because a transaction that has an id holds back vacuum.
    const [next] = await deps.database.query<{ rollUp: number }>(`SELECT nextval('usage_roll_up') AS "rollUp"`);

    const hours = dirtyHours.map(({ tenant_id, hour_seconds }) => ({ tenantId: tenant_id, hourSeconds: hour_seconds }));
    await runOnEachShard(deps.clickhouse, (stored, shard) => ({
      ...countHours(hours, next!.rollUp, { traces: stored('traces'), shard }),
      timeoutMs,
    }));
    await deps.clickhouse.command({ ...sumDays(hours, next!.rollUp), timeoutMs });

    maxWaitSeconds = dirtyHours[0]!.waited_seconds;
    const sequences = dirtyHours.flatMap(({ sequences }) => sequences);
    await transaction.query('DELETE FROM usage_dirty_hours WHERE sequence = ANY($1::bigint[])', [sequences]);
    return { outcome, hours: hours.length, more };
  });
  if (outcome.outcome === 'counted') {
    delaySeconds.observe(maxWaitSeconds + (performance.now() - startedAtMs) / 1_000);
  }
  return outcome;
}

/** Returns whether any hour is dirty. The query costs one index lookup. */
export async function hasDirtyHours(database: Pick<Database, 'query'>): Promise<boolean> {
  return (await database.query('SELECT 1 FROM usage_dirty_hours ORDER BY sequence LIMIT 1')).length > 0;
}

interface DirtyHourRow {
  readonly tenant_id: string;
  readonly hour_seconds: number;
  readonly sequences: string[];
  /** Age of the oldest row of this hour when the transaction began, in seconds. */
  readonly waited_seconds: number;
}

interface LockedHours {
  readonly outcome: RollUpOutcome['outcome'];
  /** Dirty hours of all locked groups. The first hour is the oldest. */
  readonly dirtyHours: readonly DirtyHourRow[];
  readonly more: boolean;
}

/** Performs steps 1 and 2. */
async function lockDirtyHours(
  transaction: Sql,
  { maxHours, maxDirtyHours }: { readonly maxHours: number; readonly maxDirtyHours: number },
): Promise<LockedHours> {
  const dirtyHours: DirtyHourRow[] = [];
  const triedGroups: number[] = [];
  let rows = 0;
  let isBusy = false;
  while (dirtyHours.length < maxHours && rows < maxDirtyHours) {
    const [group] = await transaction.query<{ number: number; held: boolean }>(lockNextGroupSql, [
      groupLockKey,
      triedGroups,
    ]);
    if (group === undefined) {
      const outcome = dirtyHours.length > 0 ? 'counted' : isBusy ? 'busy' : 'idle';
      return { outcome, dirtyHours, more: false };
    }
    triedGroups.push(group.number);
    if (!group.held) {
      isBusy = true;
      continue;
    }
    const limits = [maxDirtyHours - rows, maxHours - dirtyHours.length];
    for (const hour of await transaction.query<DirtyHourRow>(readDirtyHoursSql, [group.number, ...limits])) {
      dirtyHours.push(hour);
      rows += hour.sequences.length;
    }
  }
  return { outcome: 'counted', dirtyHours, more: true };
}

const lockNextGroupSql = `
  WITH oldest AS MATERIALIZED (
    SELECT tenant_group FROM usage_dirty_hours WHERE tenant_group <> ALL ($2::int[]) ORDER BY sequence LIMIT 1
  )
  SELECT tenant_group AS number, pg_try_advisory_xact_lock($1, tenant_group) AS held FROM oldest`;

const readDirtyHoursSql = `
  SELECT tenant_id, extract(epoch FROM hour)::bigint AS hour_seconds, array_agg(sequence::text) AS sequences,
    greatest(0, extract(epoch FROM now() - min(marked_at)))::float8 AS waited_seconds
  FROM (
    SELECT sequence, tenant_id, hour, marked_at FROM usage_dirty_hours WHERE tenant_group = $1 ORDER BY sequence LIMIT $2
  ) AS oldest
  GROUP BY tenant_id, hour
  ORDER BY min(sequence)
  LIMIT $3`;

export interface RollUpOptions extends RollUpDeps {
  /** Maximum time between two checks for dirty hours, in milliseconds. */
  readonly intervalMs: number;
  readonly logger: Logger;
  readonly limits?: RollUpLimits;
}

export interface RollUp {
  /**
   * Signals that hours were marked dirty, so that they are counted now instead of at the next check. Never blocks and
   * never throws.
   */
  wake(): void;
  /**
   * Waits until a running roll-up run has ended, then executes one. When it resolves, all hours marked dirty before the
   * call are counted, unless the outcome is `busy` or `more` is set.
   *
   * @throws errors of {@link runRollUp}.
   */
  runNow(): Promise<RollUpOutcome>;
  /**
   * Checks that roll-up runs succeed.
   *
   * @throws the last error after several consecutive failures; usage then lags behind.
   */
  check(): Promise<void>;
  /** Stops the loop; resolves when a roll-up run that is in progress has finished. */
  stop(): Promise<void>;
}

/**
 * Minimum number of consecutive failures that are reported. One or two failures in a row are expected when an engine
 * restarts.
 */
const minReportedFailures = 3;
/**
 * The pause after a run is three times the duration of the run, because each run counts the current hour again while
 * traces arrive.
 */
const pauseFactor = 3;
const minPauseMs = 400;
const maxPauseMs = 5_000;
const minBackoffMs = 250;
const maxBackoffMs = 5_000;

/** Starts the roll-up loop of a process. */
export function startRollUp({ database, clickhouse, intervalMs, logger, limits = {} }: RollUpOptions): RollUp {
  const stopping = new AbortController();
  let isWoken = true;
  let sleepController = new AbortController();
  let lagError: { readonly error: unknown } | undefined;
  let running: Promise<unknown> = Promise.resolve();

  function runNow(rollUpLimits = limits): Promise<RollUpOutcome> {
    const rollUp = running.then(async () => {
      const observe = rollUpSeconds.startTimer();
      let outcome: RollUpOutcome['outcome'] | 'failed' = 'failed';
      try {
        const result = await runRollUp({ database, clickhouse }, rollUpLimits);
        outcome = result.outcome;
        countedHours.inc(result.hours);
        logger.debug(result, 'usage roll-up run finished');
        return result;
      } finally {
        observe({ outcome });
      }
    });
    running = rollUp.catch(() => undefined);
    return rollUp;
  }

  async function runLoop(): Promise<void> {
    let failed = 0;
    while (!stopping.signal.aborted) {
      const startedMs = performance.now();
      try {
        if (isWoken || (await hasDirtyHours(database))) {
          isWoken = false;
          // A failed run may have been too large for the memory of ClickHouse, so the next run counts fewer hours.
          const hours = Math.ceil((limits.hours ?? defaultMaxHours) / 4 ** failed);
          isWoken = (await runNow({ ...limits, hours })).more || isWoken;
          const durationMs = performance.now() - startedMs;
          await pause(Math.min(Math.max(minPauseMs, pauseFactor * durationMs), maxPauseMs), stopping.signal);
        }
        if (failed > 0) logger.info({ failed }, 'usage roll-up works again');
        failed = 0;
        lagError = undefined;
        sleepController = new AbortController();
        if (!isWoken) await pause(intervalMs, AbortSignal.any([stopping.signal, sleepController.signal]));
      } catch (err) {
        failed += 1;
        if (failed >= minReportedFailures) lagError = { error: err };
        logger.warn({ err, failed }, 'usage roll-up run failed; its hours stay dirty');
        await pause(Math.min(minBackoffMs * 2 ** (failed - 1), maxBackoffMs), stopping.signal);
      }
    }
  }

  const loopPromise = runLoop();
  const removeMetricReader = oldestDirtyHourAge.setReader(() => readOldestDirtyHourAge(database));
  return {
    wake: () => {
      isWoken = true;
      sleepController.abort();
    },
    runNow: () => runNow(),
    check: async () => {
      if (lagError !== undefined) throw lagError.error;
    },
    stop: async () => {
      stopping.abort();
      await loopPromise;
      await running;
      removeMetricReader();
    },
  };
}
