import type { Database } from '../../infra/postgres/pool.ts';
import { nilUuid } from '../ingest/run-event/run-event.ts';
import { allNames, type Names, namesOf } from './dimension-names.ts';
import type { Grouping } from './grouping.ts';
import type { UsageCountRow } from './read-usage-rows.ts';
import { type BucketBounds, bucketBounds, planBuckets, type Stride, type UsageRange } from './stride.ts';
import type { ReadUsageCounts } from './usage-counts.ts';

export interface GranularUsageRequest {
  readonly organizationId: string;
  /** Workspaces of that organisation that the caller may read. If empty, the report has no rows. */
  readonly workspaceIds: readonly string[];
  /** Between 1970 and 2200; the end is after the start. */
  readonly range: UsageRange;
  readonly groupBy: Grouping;
}

/** The keys of `dimensions` that SPEC.md 4.2 lists for the grouping; null if unknown or deleted. */
export type Dimensions = Readonly<Record<string, string | null>>;

/** Half-open, in seconds since 1970, UTC. */
export interface UsageBucket extends BucketBounds {
  /** Traces for each entry of the report's `dimensions`, in that order; zero if there are none. */
  readonly traces: Float64Array;
}

export interface GranularUsage {
  readonly stride: Stride;
  /** Sorted and unique. */
  readonly dimensions: readonly Dimensions[];
  /** Sorted by time, without buckets that have no traces. */
  readonly buckets: readonly UsageBucket[];
}

/** One cell of the report. */
export interface UsageRow extends BucketBounds {
  readonly dimensions: Dimensions;
  readonly traces: number;
}

/**
 * Counts traces per bucket and dimension, with current names.
 *
 * JSON, CSV and dashboards all use this query. For the same workspaces and hours the rows have the same total, whatever
 * the grouping and stride.
 *
 * @throws errors of ClickHouse and Postgres.
 */
export async function granularUsage(
  deps: { readonly usageCounts: ReadUsageCounts; readonly database: Pick<Database, 'query'> },
  request: GranularUsageRequest,
): Promise<GranularUsage> {
  const plan = planBuckets(request.range);
  const { organizationId, workspaceIds, groupBy } = request;
  const [{ ids, rows }, all] = await Promise.all([
    deps.usageCounts(plan, workspaceIds, groupBy),
    allNames(deps.database, organizationId, groupBy),
  ]);
  const known = ids.filter((id) => id !== nilUuid);
  const names = all ?? (await namesOf(deps.database, organizationId, groupBy, known));
  const { dimensions, ranks } = rank(groupBy, ids, names);
  const buckets = sumBuckets(rows, ranks, dimensions.length);
  return {
    stride: plan.stride,
    dimensions,
    buckets: [...buckets]
      .sort(([a], [b]) => a - b)
      .map(([index, traces]) => ({ ...bucketBounds(plan, index), traces })),
  };
}

/** The non-zero cells of a report, by bucket, then by dimension. */
export function* usageRows({ buckets, dimensions }: GranularUsage): Generator<UsageRow> {
  for (const { startSeconds, endSeconds, traces } of buckets) {
    for (const [index, dimension] of dimensions.entries()) {
      if (traces[index] !== 0) yield { startSeconds, endSeconds, dimensions: dimension, traces: traces[index]! };
    }
  }
}

/** Adds up ids with equal labels, such as two keys with the same short form. */
function sumBuckets(rows: readonly UsageCountRow[], ranks: readonly number[], width: number) {
  const buckets = new Map<number, Float64Array>();
  for (const { bucket: index, idIndexes, traces } of rows) {
    const bucket = buckets.get(index) ?? new Float64Array(width);
    buckets.set(index, bucket);
    for (let entry = 0; entry < idIndexes.length; entry++) {
      const rank = ranks[idIndexes[entry]!]!;
      bucket[rank] = bucket[rank]! + traces[entry]!;
    }
  }
  return buckets;
}

/** The distinct labels in order, and for each id the index of its label. */
function rank(groupBy: Grouping, ids: readonly string[], names: Names) {
  const labels = new Map<string, Dimensions>();
  const labelOf = ids.map((id) => {
    const dimensions = buildDimensions(groupBy, id === nilUuid ? null : id, names.get(id) ?? null);
    const label = JSON.stringify(Object.values(dimensions));
    labels.set(label, dimensions);
    return label;
  });
  const ordered = [...labels.keys()].sort();
  const rankOf = new Map(ordered.map((label, index) => [label, index]));
  return {
    ranks: labelOf.map((label) => rankOf.get(label)!),
    dimensions: ordered.map((label) => labels.get(label)!),
  };
}

function buildDimensions(groupBy: Grouping, id: string | null, name: string | null): Dimensions {
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
