import type { Query, Warehouse } from '../../infra/clickhouse/warehouse.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import { nilUuid } from '../ingest/run-event/run-event.ts';
import { namesOf } from './dimension-names.ts';
import type { Grouping } from './grouping.ts';
import { type BucketPlan, bucketBounds, planBuckets, type Stride, type UsageRange } from './stride.ts';

export interface GranularUsageRequest {
  readonly organizationId: string;
  /** Workspaces of that organisation that the caller may read. None gives no rows. */
  readonly workspaceIds: readonly string[];
  /** Between 1970 and 2200, the end after the start. */
  readonly range: UsageRange;
  readonly groupBy: Grouping;
}

/** The keys of `dimensions` that SPEC.md 4.2 lists for the grouping; null where nobody is known, or no longer. */
export type Dimensions = Readonly<Record<string, string | null>>;

export interface UsageRow {
  /** Half-open, seconds since 1970, UTC. */
  readonly startSeconds: number;
  readonly endSeconds: number;
  readonly dimensions: Dimensions;
  readonly traces: number;
}

export interface GranularUsage {
  readonly stride: Stride;
  /** One a bucket and combination of dimensions, ordered by both; none has zero traces. */
  readonly rows: readonly UsageRow[];
}

/**
 * Traces per bucket and dimension, with the names of today.
 *
 * The one query behind JSON, CSV and dashboards. Whatever the grouping and stride, the rows of the same workspaces and
 * hours sum to the same total.
 *
 * @throws what ClickHouse and Postgres throw.
 */
export async function granularUsage(
  ports: { readonly warehouse: Warehouse; readonly database: Pick<Database, 'query'> },
  request: GranularUsageRequest,
): Promise<GranularUsage> {
  const plan = planBuckets(request.range);
  const query = granularUsageQuery(plan, request.workspaceIds, request.groupBy);
  const counts = query ? await ports.warehouse.query<Count>(query) : [];
  const ids = new Set(counts.map(({ id }) => id));
  ids.delete(nilUuid);
  const names = await namesOf(ports.database, request.organizationId, request.groupBy, [...ids]);
  return { stride: plan.stride, rows: rowsOf(plan, request.groupBy, counts, names) };
}

interface Count {
  readonly bucket: number;
  readonly id: string;
  readonly counted: number;
}

/** The last whole hour that a `DateTime` of ClickHouse can hold, in 2106. */
const lastHourSeconds = 4_294_965_600;

/** Longer lists of ids travel as a table: what a parameter holds is limited. */
const mostInlineIds = 2_000;

/** The query of a plan, or undefined where nothing can match. */
export function granularUsageQuery(
  plan: BucketPlan,
  workspaceIds: readonly string[],
  groupBy: Grouping,
): Query | undefined {
  const { startInclusiveSeconds: start, originSeconds, strideSeconds } = plan;
  const end = Math.min(plan.endExclusiveSeconds, lastHourSeconds);
  if (workspaceIds.length === 0 || start >= end) return undefined;
  const short = workspaceIds.length <= mostInlineIds;
  const workspaces = { name: 'workspaces', structure: 'tenant_id UUID', rows: workspaceIds.map((id) => [id]) };
  return {
    name: 'granular-usage',
    sql: `SELECT intDiv(toUnixTimestamp(hour) - {origin:UInt32}, {stride:UInt32}) AS bucket, id, sum(traces) AS counted
FROM usage_hourly FINAL
WHERE tenant_id IN ${short ? '{workspaces:Array(UUID)}' : 'workspaces'} AND dimension = {dimension:String}
  AND hour >= toDateTime({start:UInt32}, 'UTC') AND hour < toDateTime({end:UInt32}, 'UTC')
GROUP BY bucket, id
HAVING counted > 0`,
    params: {
      ...(short ? { workspaces: workspaceIds } : {}),
      dimension: groupBy,
      start,
      end,
      origin: originSeconds,
      stride: strideSeconds,
    },
    ...(short ? {} : { external: workspaces }),
  };
}

/** Joins the names; what looks the same to the reader (two keys of one short form) becomes one row. */
function rowsOf(
  plan: BucketPlan,
  groupBy: Grouping,
  counts: readonly Count[],
  names: ReadonlyMap<string, string>,
): UsageRow[] {
  const { rankOf, dimensions } = rank(groupBy, new Set(counts.map(({ id }) => id)), names);
  const traces = new Map<number, number>();
  for (const { bucket, id, counted } of counts) {
    const place = bucket * dimensions.length + rankOf.get(id)!;
    traces.set(place, (traces.get(place) ?? 0) + counted);
  }
  return [...traces.keys()]
    .sort((a, b) => a - b)
    .map((place) => ({
      ...bucketBounds(plan, Math.floor(place / dimensions.length)),
      dimensions: dimensions[place % dimensions.length]!,
      traces: traces.get(place)!,
    }));
}

/** What the reader sees of each id, in order, once each, and where in that order an id is found. */
function rank(groupBy: Grouping, ids: ReadonlySet<string>, names: ReadonlyMap<string, string>) {
  const labels = new Map<string, Dimensions>();
  const labelOf = new Map<string, string>();
  for (const id of ids) {
    const dimensions = dimensionsOf(groupBy, id === nilUuid ? null : id, names.get(id) ?? null);
    const label = JSON.stringify(Object.values(dimensions));
    labels.set(label, dimensions);
    labelOf.set(id, label);
  }
  const ordered = [...labels.keys()].sort();
  const rankOfLabel = new Map(ordered.map((label, index) => [label, index]));
  return {
    rankOf: new Map([...labelOf].map(([id, label]) => [id, rankOfLabel.get(label)!])),
    dimensions: ordered.map((label) => labels.get(label)!),
  };
}

function dimensionsOf(groupBy: Grouping, id: string | null, name: string | null): Dimensions {
  switch (groupBy) {
    case 'workspace':
      return { workspace_id: id, workspace_name: name };
    case 'project':
      return { project_id: id, project_name: name };
    case 'user':
      return { user_id: id, user_email: name };
    case 'api_key':
      return { api_key_short_key: name };
  }
}
