import type { Database } from '../../infra/postgres/pool.ts';
import { nilUuid } from '../ingest/run-event/run-event.ts';
import { allNames, type Names, namesOf } from './dimension-names.ts';
import type { Grouping } from './grouping.ts';
import type { UsageCountRow } from './read-usage-rows.ts';
import { type BucketBounds, bucketBounds, planBuckets, type Stride, type UsageRange } from './stride.ts';
import type { ReadUsageCounts } from './usage-counts.ts';

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

/** Half-open, seconds since 1970, UTC. */
export interface UsageBucket extends BucketBounds {
  /** Traces of each of the report's `dimensions`, in their order; zero where it has none. */
  readonly traces: Float64Array;
}

export interface GranularUsage {
  readonly stride: Stride;
  /** In order, none twice. */
  readonly dimensions: readonly Dimensions[];
  /** In order; without those that have no trace at all. */
  readonly buckets: readonly UsageBucket[];
}

/** One cell of the report. */
export interface UsageRow extends BucketBounds {
  readonly dimensions: Dimensions;
  readonly traces: number;
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
  ports: { readonly usageCounts: ReadUsageCounts; readonly database: Pick<Database, 'query'> },
  request: GranularUsageRequest,
): Promise<GranularUsage> {
  const plan = planBuckets(request.range);
  const { organizationId, workspaceIds, groupBy } = request;
  const [{ ids, rows }, all] = await Promise.all([
    ports.usageCounts(plan, workspaceIds, groupBy),
    allNames(ports.database, organizationId, groupBy),
  ]);
  const known = ids.filter((id) => id !== nilUuid);
  const names = all ?? (await namesOf(ports.database, organizationId, groupBy, known));
  const { dimensions, ranks } = rank(groupBy, ids, names);
  const buckets = bucketsOf(rows, ranks, dimensions.length);
  return {
    stride: plan.stride,
    dimensions,
    buckets: [...buckets]
      .sort(([a], [b]) => a - b)
      .map(([index, traces]) => ({ ...bucketBounds(plan, index), traces })),
  };
}

/** The cells of a report that are not zero, by bucket, then by dimension. */
export function* usageRows({ buckets, dimensions }: GranularUsage): Generator<UsageRow> {
  for (const { startSeconds, endSeconds, traces } of buckets) {
    for (const [place, dimension] of dimensions.entries()) {
      if (traces[place] !== 0) yield { startSeconds, endSeconds, dimensions: dimension, traces: traces[place]! };
    }
  }
}

/** What looks the same to the reader (two keys of one short form) is added up. */
function bucketsOf(rows: readonly UsageCountRow[], ranks: readonly number[], width: number) {
  const buckets = new Map<number, Float64Array>();
  for (const { bucket: index, places, traces } of rows) {
    const bucket = buckets.get(index) ?? new Float64Array(width);
    buckets.set(index, bucket);
    for (let entry = 0; entry < places.length; entry++) {
      const rank = ranks[places[entry]!]!;
      bucket[rank] = bucket[rank]! + traces[entry]!;
    }
  }
  return buckets;
}

/** What the reader sees of each id, in order, once each, and for each id where in that order it stands. */
function rank(groupBy: Grouping, ids: readonly string[], names: Names) {
  const labels = new Map<string, Dimensions>();
  const labelOf = ids.map((id) => {
    const dimensions = dimensionsOf(groupBy, id === nilUuid ? null : id, names.get(id) ?? null);
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
