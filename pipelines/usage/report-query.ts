import type { Query } from '../../infra/clickhouse/clickhouse.ts';
import { lastHourSeconds } from '../runs/stats/fact-rows.ts';
import type { BucketPlan } from './rollup-query.ts';

/** Dimensions that usage can be grouped by. */
export const groupings = ['workspace', 'project', 'user', 'api_key'] as const;
export type Grouping = (typeof groupings)[number];

/** Counts of one bucket, in no particular order. */
export interface UsageCounts {
  /** Index of the bucket. */
  readonly bucket: number;
  /** Ids of projects, users, keys or workspaces. */
  readonly ids: readonly string[];
  /** Number of traces for each id. */
  readonly traces: readonly number[];
}

const daySeconds = 86_400;

/**
 * Maximum number of ids in the statement. Longer lists are sent as an external table, because parameters have a size
 * limit.
 */
const maxInlineIds = 2_000;

/**
 * Builds the query of every usage report, with {@link UsageCounts} as rows; returns undefined if there can be no rows.
 *
 * Whole UTC days of the range are read from `usage_daily`. The hours before and after them, and all hours of an hourly
 * report, are read from `usage_hourly`. Daily rows are sums of the same hours, and daily buckets begin at midnight, so
 * no day has to be divided.
 */
export function buildUsageQuery(
  plan: BucketPlan,
  workspaceIds: readonly string[],
  groupBy: Grouping,
): Query | undefined {
  const { startInclusiveSeconds: start, originSeconds, strideSeconds } = plan;
  const end = Math.min(plan.endExclusiveSeconds, lastHourSeconds);
  if (workspaceIds.length === 0 || start >= end) return undefined;
  const { sql: workspacesSql, params, ...workspaces } = buildWorkspacesCondition(workspaceIds);
  const workspaceCondition = `${workspacesSql} AND dimension = {dimension:String}`;
  const { from, to } = findWholeDays(plan, end);
  const sources =
    from < to
      ? [
          ...(start < from ? [selectHours(workspaceCondition, 'start', 'from')] : []),
          selectDays(workspaceCondition),
          ...(to < end ? [selectHours(workspaceCondition, 'to', 'end')] : []),
        ]
      : [selectHours(workspaceCondition, 'start', 'end')];
  const rows = sources.join('\nUNION ALL\n');
  // If each bucket is one row of the table, no GROUP BY is needed.
  const isOneRowPerBucket =
    from < to && sources.length === 1 && workspaceIds.length === 1 && strideSeconds === daySeconds;
  return {
    name: 'granular-usage',
    sql: isOneRowPerBucket
      ? rows
      : `SELECT bucket, total.1 AS ids, total.2 AS traces
FROM (SELECT bucket, sumMap(ids, traces) AS total FROM (
${rows}
) GROUP BY bucket)`,
    params: {
      ...params,
      dimension: groupBy,
      start,
      ...(from < to ? { from, to } : {}),
      end,
      origin: originSeconds,
      stride: strideSeconds,
    },
    ...workspaces,
  };
}

/**
 * Builds the condition on workspaces, and chooses the tables. For a single workspace, `=` is used, which ClickHouse plans
 * faster than a list, and the tables of its shard.
 */
function buildWorkspacesCondition(ids: readonly string[]): Omit<Query, 'name'> {
  const [workspace, ...others] = ids;
  if (workspace !== undefined && others.length === 0) {
    const shard = { shardTables: ['usage_hourly', 'usage_daily'], shardOf: workspace };
    return { sql: 'tenant_id = {workspace:UUID}', params: { workspace }, ...shard };
  }
  // Workspaces may be on different shards, whose rows only the Distributed tables group.
  const tables = { stored_usage_hourly: 'usage_hourly', stored_usage_daily: 'usage_daily' };
  if (ids.length <= maxInlineIds)
    return { sql: 'tenant_id IN {workspaces:Array(UUID)}', params: { ...tables, workspaces: ids } };
  const externalTable = { name: 'workspaces', structure: 'tenant_id UUID', rows: ids.map((id) => [id]) };
  return { sql: 'tenant_id IN workspaces', params: tables, externalTable };
}

/** Returns the range of whole UTC days to read from `usage_daily`. The range is empty for an hourly report. */
function findWholeDays(
  { stride, startInclusiveSeconds: start }: BucketPlan,
  end: number,
): { from: number; to: number } {
  if (stride.days === 0) return { from: 0, to: 0 };
  return { from: Math.ceil(start / daySeconds) * daySeconds, to: Math.floor(end / daySeconds) * daySeconds };
}

function selectHours(workspaceCondition: string, startParam: string, endParam: string): string {
  return `SELECT toUInt32(intDiv(toUnixTimestamp(hour) - {origin:UInt32}, {stride:UInt32})) AS bucket, ids, traces
FROM {stored_usage_hourly:Identifier} FINAL
WHERE ${workspaceCondition} AND hour >= toDateTime({${startParam}:UInt32}, 'UTC') AND hour < toDateTime({${endParam}:UInt32}, 'UTC')`;
}

function selectDays(workspaceCondition: string): string {
  return `SELECT toUInt32(intDiv(toUInt32(day) * ${daySeconds} - {origin:UInt32}, {stride:UInt32})) AS bucket, ids, traces
FROM {stored_usage_daily:Identifier} FINAL
WHERE ${workspaceCondition} AND day >= toDate(toDateTime({from:UInt32}, 'UTC')) AND day < toDate(toDateTime({to:UInt32}, 'UTC'))`;
}
