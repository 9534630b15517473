/** Steps that the roll-ups have in common: reads the dirty hours for a roll-up run, under locks (`rollup.ts`). */
import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import type { DirtyHour } from '../../infra/event-log/event-log.ts';
import type { Session } from '../../infra/postgres/database.ts';
import type { Database, Sql } from '../../infra/postgres/pool.ts';
import { dirtyHoursCondition, toDirtyHoursTable } from './rollup-query.ts';

/** A table with dirty hours: one for usage, and one for the facts of runs, which are counted later. */
export interface DirtyHoursSource {
  readonly table: 'usage_dirty_hours' | 'fact_dirty_hours';
  /** Indexed column by which the oldest dirty hour is found. */
  readonly order: 'sequence' | 'marked_at';
  /**
   * First key of the advisory locks of groups; the second key is the group. No other lock in this database uses this
   * first key.
   */
  readonly lockKey: number;
  /** Tables of ClickHouse with the counted hours, and their column for the hour or the day as an expression on an hour. */
  readonly counted: readonly { readonly table: string; readonly column: string; readonly expression: string }[];
}

export interface DirtyHoursLimits {
  /** Maximum number of distinct hours. A run with {@link fullRunHours} takes no further group. */
  readonly hours: number;
  /** Maximum number of rows that are read. */
  readonly rows: number;
  /** Minimum time since an hour was marked, in seconds; younger rows are ignored. */
  readonly minAgeSeconds: number;
}

export interface RollUpOutcome {
  /** `busy`: another process holds the lock. `idle`: no hour is dirty. */
  readonly outcome: 'counted' | 'idle' | 'busy';
  readonly hours: number;
  /** Whether a limit was reached, in which case dirty hours may be left. */
  readonly more: boolean;
}

export interface LockedHours {
  readonly outcome: RollUpOutcome['outcome'];
  /** Dirty hours of all locked groups. The first hour is the oldest. */
  readonly hours: readonly DirtyHour[];
  /** Sequence numbers of the rows that were read. */
  readonly sequences: readonly string[];
  /** Age of the oldest row of the first hour when it was read, in seconds. */
  readonly waitedSeconds: number;
  /** Whether a limit was reached, in which case dirty hours may be left. */
  readonly more: boolean;
}

interface DirtyHourRow {
  readonly tenant_id: string;
  readonly hour_seconds: number;
  readonly sequences: string[];
  readonly waited_seconds: number;
}

/**
 * Number of hours from which a roll-up run is so long that its fixed cost does not matter. It leaves the remaining groups to
 * other processes, which count at the same time, or to its next run.
 */
const fullRunHours = 1_000;

/** Returns whether any hour has been dirty for `minAgeSeconds`. The query costs one index lookup. */
export async function isAnyHourDirty(
  database: Pick<Sql, 'query'>,
  { table, order }: DirtyHoursSource,
  minAgeSeconds = 0,
): Promise<boolean> {
  const age = minAgeSeconds > 0 ? `WHERE ${buildAgeCondition(minAgeSeconds)} ` : '';
  return (await database.query(`SELECT 1 FROM ${table} ${age}ORDER BY ${order} LIMIT 1`)).length > 0;
}

/**
 * Executes a roll-up run: locks and reads dirty hours, takes the number of the run, and counts the hours.
 *
 * No transaction is open while `count` runs.
 *
 * @param count Counts the hours. @param finish Deletes the rows that were read. It runs on the connection that holds the
 *   locks, so it fails if they were lost.
 * @throws errors of Postgres, of `count` and of `finish`.
 */
export async function countDirtyHours(
  { database, clickhouse }: { readonly database: Database; readonly clickhouse: ClickHouse },
  source: DirtyHoursSource,
  limits: DirtyHoursLimits,
  count: (locked: LockedHours, rollUp: number) => Promise<void>,
  finish: (locked: LockedHours, transaction: Sql) => Promise<void>,
): Promise<RollUpOutcome & { readonly waitedSeconds: number }> {
  return database.session(async (session) => {
    const locked = await lockDirtyHours(session, source, limits);
    const { outcome, hours, waitedSeconds, more } = locked;
    if (outcome !== 'counted') return { outcome, hours: 0, waitedSeconds, more: false };
    await count(locked, await takeNumber(session, clickhouse, source, hours));
    await session.transaction((transaction) => finish(locked, transaction));
    return { outcome, hours: hours.length, waitedSeconds, more };
  });
}

/**
 * Returns the number of a roll-up run, which is higher than the numbers in all rows that it replaces. The sequence is
 * behind them after Postgres was restored from a backup, and ClickHouse was not.
 */
async function takeNumber(
  session: Session,
  clickhouse: ClickHouse,
  { counted }: DirtyHoursSource,
  hours: readonly DirtyHour[],
): Promise<number> {
  const readHighest = ({ table, column, expression }: DirtyHoursSource['counted'][number]) =>
    `SELECT max(roll_up) AS number FROM ${table} WHERE ${dirtyHoursCondition(column, expression)}`;
  const [stored] = await clickhouse.query<{ highest: number }>({
    name: 'read-highest-roll-up',
    sql: `SELECT max(number) AS highest FROM (${counted.map(readHighest).join(' UNION ALL ')})`,
    externalTable: toDirtyHoursTable(hours),
  });
  const take = async (count: number) => {
    // Other processes may take numbers at the same time, so the sequence must not be set.
    const sql = `SELECT max(nextval('usage_roll_up')) AS number FROM generate_series(1, $1::bigint)`;
    return (await session.query<{ number: number }>(sql, [count]))[0]!.number;
  };
  const next = await take(1);
  return next > stored!.highest ? next : take(stored!.highest + 1 - next);
}

/**
 * Locks the group of workspaces with the oldest dirty hour that no other session has locked, and reads the dirty hours
 * of the group; continues with other groups up to the limits. The locks are released at the end of the session.
 */
async function lockDirtyHours(
  session: Session,
  source: DirtyHoursSource,
  limits: DirtyHoursLimits,
): Promise<LockedHours> {
  const found: DirtyHourRow[] = [];
  const triedGroups: number[] = [];
  let rows = 0;
  let isBusy = false;
  const finish = (outcome: LockedHours['outcome'], more: boolean): LockedHours => ({
    outcome,
    hours: found.map(({ tenant_id, hour_seconds }) => ({ tenantId: tenant_id, hourSeconds: hour_seconds })),
    sequences: found.flatMap(({ sequences }) => sequences),
    waitedSeconds: found[0]?.waited_seconds ?? 0,
    more,
  });
  while (found.length < Math.min(limits.hours, fullRunHours) && rows < limits.rows) {
    const [group] = await session.query<{ number: number; held: boolean }>(buildLockSql(source, limits.minAgeSeconds), [
      source.lockKey,
      triedGroups,
    ]);
    if (group === undefined) return finish(found.length > 0 ? 'counted' : isBusy ? 'busy' : 'idle', false);
    triedGroups.push(group.number);
    if (!group.held) {
      isBusy = true;
      continue;
    }
    const sql = buildReadSql(source, limits.minAgeSeconds);
    const maxima = [limits.rows - rows, limits.hours - found.length];
    for (const hour of await session.query<DirtyHourRow>(sql, [group.number, ...maxima])) {
      found.push(hour);
      rows += hour.sequences.length;
    }
  }
  return finish('counted', true);
}

const buildAgeCondition = (minAgeSeconds: number) =>
  `marked_at <= clock_timestamp() - interval '${minAgeSeconds} seconds'`;

const buildLockSql = ({ table, order }: DirtyHoursSource, minAgeSeconds: number) => `
  WITH oldest AS MATERIALIZED (
    SELECT tenant_group FROM ${table} WHERE tenant_group <> ALL ($2::int[])
      ${minAgeSeconds > 0 ? `AND ${buildAgeCondition(minAgeSeconds)}` : ''} ORDER BY ${order} LIMIT 1
  )
  SELECT tenant_group AS number, pg_try_advisory_lock($1, tenant_group) AS held FROM oldest`;

const buildReadSql = ({ table, order }: DirtyHoursSource, minAgeSeconds: number) => `
  SELECT tenant_id, extract(epoch FROM hour)::bigint AS hour_seconds, array_agg(sequence::text) AS sequences,
    greatest(0, extract(epoch FROM now() - min(marked_at)))::float8 AS waited_seconds
  FROM (
    SELECT sequence, tenant_id, hour, marked_at FROM ${table}
    WHERE tenant_group = $1 ${minAgeSeconds > 0 ? `AND ${buildAgeCondition(minAgeSeconds)}` : ''} ORDER BY ${order} LIMIT $2
  ) AS oldest
  GROUP BY tenant_id, hour
  ORDER BY min(${order})
  LIMIT $3`;
