import type { Command, ExternalTable } from '../../infra/clickhouse/clickhouse.ts';
import type { DirtyHour } from '../../infra/event-log/event-log.ts';

/** Size of a bucket as the API returns it; exactly one of the two fields is not zero. */
export interface Stride {
  readonly days: number;
  readonly hours: number;
}

/** Requested time range: `startMs` inclusive, `endMs` exclusive; milliseconds since 1970, UTC. */
export interface UsageRange {
  readonly startMs: number;
  readonly endMs: number;
}

/** How a range is divided into buckets. Times are in seconds since 1970, UTC. */
export interface BucketPlan {
  readonly stride: Stride;
  readonly strideSeconds: number;
  /**
   * The counted hours: from the start of the range, rounded down, to the end of the range, rounded up, in whole hours.
   */
  readonly startInclusiveSeconds: number;
  readonly endExclusiveSeconds: number;
  /**
   * Start of bucket 0: for hourly buckets, the hour in which the range starts; for larger buckets, the UTC day in which
   * it starts.
   */
  readonly originSeconds: number;
}

export interface BucketBounds {
  readonly startSeconds: number;
  readonly endSeconds: number;
}

const hourSeconds = 3_600;
const daySeconds = 86_400;
const dayMs = daySeconds * 1_000;

/**
 * The strides, each with the ranges that it is used for, by their unrounded length. Hourly buckets are used for ranges
 * of less than a day; each other stride is used for ranges up to and including the given number of days. Longer ranges
 * use {@link yearlyStride}.
 */
const strides: ReadonlyArray<{ readonly fits: (rangeMs: number) => boolean; readonly stride: Stride }> = [
  { fits: (rangeMs) => rangeMs < dayMs, stride: { days: 0, hours: 1 } },
  { fits: (rangeMs) => rangeMs <= 31 * dayMs, stride: { days: 1, hours: 0 } },
  { fits: (rangeMs) => rangeMs <= 93 * dayMs, stride: { days: 7, hours: 0 } },
  { fits: (rangeMs) => rangeMs <= 366 * dayMs, stride: { days: 30, hours: 0 } },
];
const yearlyStride: Stride = { days: 365, hours: 0 };

/** Returns the bucket size of a range, by its unrounded length. */
export function chooseStride(range: UsageRange): Stride {
  const rangeMs = range.endMs - range.startMs;
  return strides.find(({ fits }) => fits(rangeMs))?.stride ?? yearlyStride;
}

/**
 * Plans how `range` is counted. All strides count the same whole hours and agree on the total; only the starts of the
 * buckets differ. `range.endMs` must be after `range.startMs`.
 */
export function planBuckets(range: UsageRange): BucketPlan {
  const stride = chooseStride(range);
  const startInclusiveSeconds = roundDownTo(Math.floor(range.startMs / 1_000), hourSeconds);
  return {
    stride,
    strideSeconds: stride.days * daySeconds + stride.hours * hourSeconds,
    startInclusiveSeconds,
    endExclusiveSeconds: -roundDownTo(-Math.ceil(range.endMs / 1_000), hourSeconds),
    originSeconds: stride.hours > 0 ? startInclusiveSeconds : roundDownTo(startInclusiveSeconds, daySeconds),
  };
}

/** Returns the bounds of bucket `index`, half-open; the last bucket is clipped to the counted range. */
export function computeBucketBounds(plan: BucketPlan, index: number): BucketBounds {
  const startSeconds = plan.originSeconds + index * plan.strideSeconds;
  return { startSeconds, endSeconds: Math.min(startSeconds + plan.strideSeconds, plan.endExclusiveSeconds) };
}

function roundDownTo(value: number, step: number): number {
  return Math.floor(value / step) * step;
}

/** Returns the dirty hours as an external table, because a list of keys in the statement would have a size limit. */
export function toDirtyHoursTable(hours: readonly DirtyHour[]): ExternalTable {
  return {
    name: 'dirty_hours',
    // The column is not a DateTime, because in a DateTime column ClickHouse parses short numbers as other formats.
    structure: 'tenant_id UUID, hour_seconds UInt32',
    rows: hours.map(({ tenantId, hourSeconds }) => [tenantId, hourSeconds]),
  };
}

/** The hour and the day of a row of {@link toDirtyHoursTable}. */
export const hourSql = "toDateTime(hour_seconds, 'UTC')";
export const daySql = `toDate(${hourSql})`;

/**
 * Builds the condition on the hours of {@link toDirtyHoursTable}. The third condition selects the dirty hours. The
 * first two conditions are added because ClickHouse can use the sorting key only for conditions on one column.
 */
export const dirtyHoursCondition = (
  column: string,
  hourExpression: string,
) => `tenant_id IN (SELECT tenant_id FROM dirty_hours)
      AND ${column} IN (SELECT ${hourExpression} FROM dirty_hours)
      AND (tenant_id, ${column}) IN (SELECT tenant_id, ${hourExpression} FROM dirty_hours)`;

/**
 * Builds step 4 of a roll-up run (`rollup.ts`) for one shard: counts the traces of the dirty hours that are stored
 * there. Reads the traces once for all dimensions. The second half of the UNION emits empty lists for hours that no
 * longer have traces. `pick` is read by position, because under FINAL a subcolumn read by name returns unmerged rows.
 */
export function countHours(
  hours: readonly DirtyHour[],
  rollUp: number,
  { traces, shard }: { readonly traces: string; readonly shard: number },
): Command {
  return {
    name: 'count-usage-hours',
    sql: `INSERT INTO usage_hourly (tenant_id, dimension, hour, shard, ids, traces, roll_up)
SELECT tenant_id, entry.1, hour, {shard:UInt16}, entry.2.1, entry.2.2, {rollUp:UInt64}
FROM (
  SELECT tenant_id, hour, sumMap(workspaces, ones) AS by_workspace, sumMap(projects, ones) AS by_project,
    sumMap(users, ones) AS by_user, sumMap(api_keys, ones) AS by_key
  FROM (
    SELECT tenant_id, hour, [tenant_id] AS workspaces, [pick.3] AS projects, [pick.4] AS users, [pick.5] AS api_keys,
      [toUInt64(1)] AS ones
    FROM ${traces} FINAL
    WHERE ${dirtyHoursCondition('hour', hourSql)}
    UNION ALL
    SELECT tenant_id, ${hourSql}, [], [], [], [], [] FROM dirty_hours
  )
  GROUP BY tenant_id, hour
)
ARRAY JOIN [('workspace', by_workspace), ('project', by_project), ('user', by_user), ('api_key', by_key)] AS entry`,
    params: { rollUp, shard },
    externalTable: toDirtyHoursTable(hours),
    profile: 'bulk',
  };
}

/** Builds step 5 of a roll-up run (`rollup.ts`): sums the days of the dirty hours. */
export function sumDays(hours: readonly DirtyHour[], rollUp: number): Command {
  return {
    name: 'sum-usage-days',
    sql: `INSERT INTO usage_daily (tenant_id, dimension, day, ids, traces, roll_up)
SELECT tenant_id, dimension, day, counted.1, counted.2, {rollUp:UInt64}
FROM (
  SELECT tenant_id, dimension, toDate(hour) AS day, sumMap(ids, traces) AS counted
  FROM usage_hourly FINAL
  WHERE ${dirtyHoursCondition('toDate(hour)', daySql)}
  GROUP BY tenant_id, dimension, day
)`,
    params: { rollUp },
    externalTable: toDirtyHoursTable(hours),
    profile: 'bulk',
  };
}
