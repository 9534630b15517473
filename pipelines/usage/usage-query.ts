import type { Query } from '../../infra/clickhouse/warehouse.ts';
import type { Grouping } from './grouping.ts';
import type { BucketPlan } from './stride.ts';

const hourSeconds = 3_600;
const daySeconds = 86_400;

/** The last whole hour that a `DateTime` of ClickHouse can hold, in 2106. */
const lastHourSeconds = 4_294_965_600;

/** Longer lists of ids travel as a table: what a parameter holds is limited. */
const mostInlineIds = 2_000;

/**
 * The query behind every usage report, or undefined where nothing can match.
 *
 * Whole UTC days of the range come from `usage_daily`, the hours before and after them, and all of an hourly report, from
 * `usage_hourly`. The days are sums of the same hours, and buckets of days begin at midnight, so no day is divided.
 * Its rows are read by `readUsageRows`.
 */
export function usageQuery(plan: BucketPlan, workspaceIds: readonly string[], groupBy: Grouping): Query | undefined {
  const { startInclusiveSeconds: start, originSeconds, strideSeconds } = plan;
  const end = Math.min(plan.endExclusiveSeconds, lastHourSeconds);
  if (workspaceIds.length === 0 || start >= end) return undefined;
  const workspaces = placeOfWorkspaces(workspaceIds);
  const mine = `${workspaces.sql} AND dimension = {dimension:String}`;
  const { from, to } = wholeDays(plan, end);
  const sources =
    from < to
      ? [
          ...(start < from ? [hours(mine, 'start', 'from')] : []),
          days(mine),
          ...(to < end ? [hours(mine, 'to', 'end')] : []),
        ]
      : [hours(mine, 'start', 'end')];
  const rows = sources.join('\nUNION ALL\n');
  // Where a bucket is one row of the table, what little is left to add up is added up by the reader.
  const summed = strideSeconds === (from < to ? daySeconds : hourSeconds);
  return {
    name: 'granular-usage',
    sql: summed
      ? rows
      : `SELECT bucket, total.1 AS ids, total.2 AS traces
FROM (SELECT bucket, sumMap(ids, traces) AS total FROM (
${rows}
) GROUP BY bucket)`,
    params: {
      ...workspaces.params,
      dimension: groupBy,
      start,
      ...(from < to ? { from, to } : {}),
      end,
      origin: originSeconds,
      stride: strideSeconds,
    },
    ...(workspaces.external && { external: workspaces.external }),
  };
}

/** One is named with `=`, which ClickHouse plans sooner than a list. */
function placeOfWorkspaces(ids: readonly string[]): Pick<Query, 'sql' | 'params' | 'external'> {
  if (ids.length === 1) return { sql: 'tenant_id = {workspace:UUID}', params: { workspace: ids[0]! } };
  if (ids.length <= mostInlineIds) return { sql: 'tenant_id IN {workspaces:Array(UUID)}', params: { workspaces: ids } };
  const external = { name: 'workspaces', structure: 'tenant_id UUID', rows: ids.map((id) => [id]) };
  return { sql: 'tenant_id IN workspaces', params: {}, external };
}

/** None where the report is by the hour. */
function wholeDays({ stride, startInclusiveSeconds: start }: BucketPlan, end: number): { from: number; to: number } {
  if (stride.days === 0) return { from: 0, to: 0 };
  return { from: Math.ceil(start / daySeconds) * daySeconds, to: Math.floor(end / daySeconds) * daySeconds };
}

function hours(mine: string, start: string, end: string): string {
  return `SELECT toUInt32(intDiv(toUnixTimestamp(hour) - {origin:UInt32}, {stride:UInt32})) AS bucket, ids, traces
FROM usage_hourly FINAL
WHERE ${mine} AND hour >= toDateTime({${start}:UInt32}, 'UTC') AND hour < toDateTime({${end}:UInt32}, 'UTC')`;
}

function days(mine: string): string {
  return `SELECT toUInt32(intDiv(toUInt32(day) * ${daySeconds} - {origin:UInt32}, {stride:UInt32})) AS bucket, ids, traces
FROM usage_daily FINAL
WHERE ${mine} AND day >= toDate(toDateTime({from:UInt32}, 'UTC')) AND day < toDate(toDateTime({to:UInt32}, 'UTC'))`;
}
