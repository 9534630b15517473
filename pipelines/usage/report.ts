import { createHash } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import { nilUuid } from '../ingest/run-event/run-event.ts';
import type { Grouping } from './grouping.ts';
import { lastChange } from './mark-hours-dirty.ts';
import { readUsageRows, type UsageCountRow, type UsageCounts } from './read-usage-rows.ts';
import { readReports } from './run-roll-up.ts';
import {
  type BucketBounds,
  type BucketPlan,
  bucketBounds,
  planBuckets,
  type Stride,
  type UsageRange,
} from './stride.ts';
import { usageQuery } from './usage-query.ts';

/** Current names by id, including deleted projects and revoked keys. Each query is restricted to one organisation. */
const sources: Readonly<Record<Grouping, string>> = {
  workspace: 'SELECT id, display_name AS name FROM workspaces WHERE organization_id = $1',
  project: `SELECT projects.id, name FROM projects JOIN workspaces ON workspaces.id = workspace_id WHERE organization_id = $1`,
  user: `SELECT id, name FROM (
      SELECT organization_id, id, email AS name FROM users
      UNION ALL SELECT organization_id, id, identity FROM end_users
    ) named WHERE organization_id = $1`,
  api_key: 'SELECT id, short_key AS name FROM api_keys WHERE organization_id = $1',
};

/**
 * Up to this number, all names of an organisation are read while the usage is still being counted. Above it, only the
 * names that the report needs.
 */
export const maxPrefetchedNames = 1_000;

type Names = ReadonlyMap<string, string>;

/** All names that a grouping can have in the organisation, or undefined if there are more than {@link maxPrefetchedNames}. */
export async function allNames(
  database: Pick<Database, 'query'>,
  organizationId: string,
  groupBy: Grouping,
): Promise<Names | undefined> {
  const rows = await database.query<NameRow>(`${sources[groupBy]} LIMIT $2`, [organizationId, maxPrefetchedNames + 1], {
    name: `all-usage-names-${groupBy}`,
  });
  return rows.length > maxPrefetchedNames ? undefined : toNames(rows);
}

/** The names of `ids`. Ids without a name are absent from the map. */
async function namesOf(
  database: Pick<Database, 'query'>,
  organizationId: string,
  groupBy: Grouping,
  ids: readonly string[],
): Promise<Names> {
  if (ids.length === 0) return new Map();
  const idColumn = groupBy === 'project' ? 'projects.id' : 'id';
  const sql = `${sources[groupBy]} AND ${idColumn} = ANY ($2)`;
  return toNames(await database.query<NameRow>(sql, [organizationId, ids], { name: `usage-names-${groupBy}` }));
}

interface NameRow {
  readonly id: string;
  readonly name: string;
}

function toNames(rows: readonly NameRow[]): Names {
  return new Map(rows.map(({ id, name }) => [id, name]));
}

/**
 * Reads the counts of a report from ClickHouse or, if they have not changed, from memory.
 *
 * Invariant: cached counts were read after the change that they are stored under. If Postgres still returns that change
 * as the last one, ClickHouse would return the same counts.
 *
 *   1. Read the last change that affects the report from Postgres.
 *   2. If counts are cached under this change, return them.
 *   3. Otherwise read the counts from ClickHouse and cache them under the change of step 1. A roll-up run that ends
 *      between the two steps, or runs during step 3, records a later change when it ends, so that counts read in
 *      between are not used afterwards.
 *
 * Counts are cached for at most a minute, which bounds the effect of manual changes to the tables and of lagging replicas.
 */

interface UsageCountsDeps {
  readonly clickhouse: Pick<ClickHouse, 'queryText'>;
  readonly database: Pick<Database, 'query'>;
  /** Maximum memory of cached counts, in bytes; 0 disables the cache. */
  readonly cacheBytes: number;
}

/** @throws errors of ClickHouse and Postgres. */
export type ReadUsageCounts = (
  plan: BucketPlan,
  workspaceIds: readonly string[],
  groupBy: Grouping,
) => Promise<UsageCounts>;

const none: UsageCounts = { ids: [], rows: [] };
const maxCachedMs = 60_000;

export function createUsageCounts({ clickhouse, database, cacheBytes }: UsageCountsDeps): ReadUsageCounts {
  const cached = new LRUCache<string, { readonly change: number; readonly counts: UsageCounts }>({
    maxSize: Math.max(1, cacheBytes),
    sizeCalculation: ({ counts }, key) => key.length + estimateBytes(counts),
    ttl: maxCachedMs,
  });
  return async (plan, workspaceIds, groupBy) => {
    const query = usageQuery(plan, workspaceIds, groupBy);
    if (query === undefined) return none;
    const read = async () => {
      readReports.inc({ source: 'clickhouse' });
      return readUsageRows(await clickhouse.queryText({ ...query, format: 'RowBinary' }));
    };
    if (cacheBytes === 0) return read();

    const key = buildCacheKey(plan, workspaceIds, groupBy);
    const change = await lastChange(database, workspaceIds, {
      startSeconds: plan.startInclusiveSeconds,
      endSeconds: plan.endExclusiveSeconds,
    });
    const found = cached.get(key);
    if (found?.change === change) {
      readReports.inc({ source: 'memory' });
      return found.counts;
    }
    const counts = await read();
    cached.set(key, { change, counts });
    return counts;
  };
}

/** Cache key: everything that the rows depend on. */
function buildCacheKey(plan: BucketPlan, workspaceIds: readonly string[], groupBy: Grouping): string {
  const { startInclusiveSeconds, endExclusiveSeconds, originSeconds, strideSeconds } = plan;
  const question = [groupBy, startInclusiveSeconds, endExclusiveSeconds, originSeconds, strideSeconds];
  return createHash('sha256')
    .update([...question, ...workspaceIds.toSorted()].join())
    .digest('base64');
}

/** Approximate size in memory. */
function estimateBytes({ ids, rows }: UsageCounts): number {
  const perId = 64;
  const perRow = 300;
  return rows.reduce(
    (sum, { idIndexes, traces }) => sum + perRow + idIndexes.byteLength + traces.byteLength,
    ids.length * perId,
  );
}

export interface GranularUsageRequest {
  readonly organizationId: string;
  /** Workspaces of that organisation that the caller may read. If empty, the report has no rows. */
  readonly workspaceIds: readonly string[];
  /** Between 1970 and 2200; the end is after the start. */
  readonly range: UsageRange;
  readonly groupBy: Grouping;
}

/** The keys of `dimensions` that SPEC.md 4.2 lists for the grouping; null if unknown or deleted. */
type Dimensions = Readonly<Record<string, string | null>>;

/** Half-open, in seconds since 1970, UTC. */
interface UsageBucket extends BucketBounds {
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

interface OrganizationUsage {
  /** Counted range: whole hours, half-open, in seconds since 1970. */
  readonly startSeconds: number;
  readonly endSeconds: number;
  readonly traces: number;
  /** Traces by workspace id; workspaces without traces are left out. */
  readonly byWorkspace: Readonly<Record<string, number>>;
}

/**
 * Traces of a whole range, by workspace. Equal to the sum over the buckets of {@link granularUsage}.
 *
 * @throws errors of ClickHouse and Postgres.
 */
export async function organizationUsage(
  deps: Parameters<typeof granularUsage>[0],
  request: Omit<GranularUsageRequest, 'groupBy'>,
): Promise<OrganizationUsage> {
  const usage = await granularUsage(deps, { ...request, groupBy: 'workspace' });
  const byWorkspace: Record<string, number> = {};
  let total = 0;
  for (const { dimensions, traces } of usageRows(usage)) {
    const id = String(dimensions.workspace_id);
    byWorkspace[id] = (byWorkspace[id] ?? 0) + traces;
    total += traces;
  }
  const plan = planBuckets(request.range);
  return {
    startSeconds: plan.startInclusiveSeconds,
    endSeconds: plan.endExclusiveSeconds,
    traces: total,
    byWorkspace,
  };
}
