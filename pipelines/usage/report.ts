import type { ClickHouse, Query } from '../../infra/clickhouse/clickhouse.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { reserveMemory } from '../../infra/fairness/tenant-context.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import { itemsPerStep, runInTimeSlices, type StepwiseWork, sortInSteps } from '../../infra/timeouts/time-slices.ts';
import { nilUuid } from '../ingest/run-event/run-event.ts';
import { buildUsageQuery, type Grouping, type UsageCounts } from './report-query.ts';
import { type BucketBounds, computeBucketBounds, planBuckets, type Stride, type UsageRange } from './rollup-query.ts';

/**
 * Queries for the current names by id, which include deleted projects and revoked keys. Each query is restricted to one
 * organisation.
 */
const nameSources: Readonly<Record<Grouping, string>> = {
  workspace: 'SELECT id, display_name AS name FROM workspaces WHERE organization_id = $1',
  project: `SELECT projects.id, name FROM projects JOIN workspaces ON workspaces.id = workspace_id WHERE organization_id = $1`,
  user: `SELECT id, name FROM (
      SELECT organization_id, id, email AS name FROM users
      UNION ALL SELECT organization_id, id, identity FROM end_users
    ) named WHERE organization_id = $1`,
  api_key: 'SELECT id, short_key AS name FROM api_keys WHERE organization_id = $1',
};

/**
 * If an organisation has at most this many names, all of them are read while ClickHouse counts the usage. Otherwise
 * only the names that the report needs are read, after the count.
 */
export const maxPrefetchedNames = 1_000;

type NamesById = ReadonlyMap<string, string>;

/**
 * Reads all names that a grouping can have in the organisation. Returns undefined if there are more than
 * {@link maxPrefetchedNames}.
 */
export async function readAllNames(
  database: Pick<Database, 'query'>,
  organizationId: string,
  groupBy: Grouping,
): Promise<NamesById | undefined> {
  const rows = await database.query<NameRow>(
    `${nameSources[groupBy]} LIMIT $2`,
    [organizationId, maxPrefetchedNames + 1],
    {
      name: `all-usage-names-${groupBy}`,
    },
  );
  return rows.length > maxPrefetchedNames ? undefined : toNames(rows);
}

/** Reads the names of `ids`. Ids without a name are absent from the map. */
export async function readNames(
  database: Pick<Database, 'query'>,
  organizationId: string,
  groupBy: Grouping,
  ids: readonly string[],
): Promise<NamesById> {
  if (ids.length === 0) return new Map();
  const idColumn = groupBy === 'project' ? 'projects.id' : 'id';
  const sql = `${nameSources[groupBy]} AND ${idColumn} = ANY ($2)`;
  return toNames(await database.query<NameRow>(sql, [organizationId, ids], { name: `usage-names-${groupBy}` }));
}

interface NameRow {
  readonly id: string;
  readonly name: string;
}

function toNames(rows: readonly NameRow[]): NamesById {
  return new Map(rows.map(({ id, name }) => [id, name]));
}

export interface GranularUsageRequest {
  readonly organizationId: string;
  /** Workspaces of that organisation that the caller may read. If there are none, the report has no rows. */
  readonly workspaceIds: readonly string[];
  /** Time range between 1970 and 2200; the end is after the start. */
  readonly range: UsageRange;
  readonly groupBy: Grouping;
}

interface UsageReportDeps {
  readonly clickhouse: Pick<ClickHouse, 'query'>;
  readonly database: Pick<Database, 'query'>;
}

/** The keys of `dimensions` for the grouping; null if unknown or deleted. */
export type Dimensions = Readonly<Record<string, string | null>>;

/** One bucket of a report: a half-open time range, in seconds since 1970, UTC. */
interface UsageBucket extends BucketBounds {
  /** Number of traces for each entry of the report's `dimensions`, in the same order; zero if there are none. */
  readonly traces: Float64Array;
}

export interface GranularUsage {
  readonly stride: Stride;
  /** Sorted list without duplicates. */
  readonly dimensions: readonly Dimensions[];
  /** Sorted by time; buckets without traces are omitted. */
  readonly buckets: readonly UsageBucket[];
}

/** One cell of the report. */
export interface UsageRow extends BucketBounds {
  readonly dimensions: Dimensions;
  readonly traces: number;
}

/**
 * Maximum number of rows of a report. The number of users of custom authentication is not limited, and a report of more rows
 * takes hundreds of megabytes.
 */
const maxRows = 500_000;
/** Heap bytes of an id with its name. */
const heapBytesPerId = 300;
/** Heap bytes of a row, and bytes of its part of the response. */
const [heapBytesPerRow, responseBytesPerRow] = [60, 150];
/** Number of rows for which no memory is reserved. */
const unreservedRows = 10_000;

/** Maximum number of rows of a report with several figures, which take more memory. */
export const maxFigureRows = 200_000;
/** Heap bytes of a row with several figures and its dimensions, with its part of the response. */
const heapBytesPerFigureRow = 1_000;

/** Reserves memory for rows with several figures. @throws OVERLOADED */
export function reserveFigureRows(rows: number): void {
  if (rows > unreservedRows) reserveMemory(heapBytesPerFigureRow * rows);
}

/**
 * Counts traces per bucket and dimension, with current names.
 *
 * JSON, CSV and dashboards all use this query. For the same workspaces and hours, the rows have the same total
 * regardless of grouping and stride.
 *
 * @throws BAD_REQUEST if the report has too many rows; OVERLOADED; errors of ClickHouse and Postgres.
 */
export async function readGranularUsage(
  { clickhouse, database }: UsageReportDeps,
  request: GranularUsageRequest,
  max: number = maxRows,
): Promise<GranularUsage> {
  const plan = planBuckets(request.range);
  const { organizationId, workspaceIds, groupBy } = request;
  const query = buildUsageQuery(plan, workspaceIds, groupBy);
  const [counts, all] = await Promise.all([
    query === undefined ? [] : readCounts(clickhouse, query, max),
    readAllNames(database, organizationId, groupBy),
  ]);
  const rows = counts.reduce((sum, { ids }) => sum + ids.length, 0);
  const ids = await runInTimeSlices(collectIds(counts));
  if (rows > unreservedRows)
    reserveMemory(heapBytesPerId * ids.length + heapBytesPerRow * rows, responseBytesPerRow * rows);
  const known = ids.filter((id) => id !== nilUuid);
  const names = all ?? (await readNames(database, organizationId, groupBy, known));
  const { dimensions, ranks } = await runInTimeSlices(rankLabels(groupBy, ids, names));
  const buckets = await runInTimeSlices(sumBuckets(counts, ranks, dimensions.length));
  return {
    stride: plan.stride,
    dimensions,
    buckets: [...buckets]
      .sort(([a], [b]) => a - b)
      .map(([index, traces]) => ({ ...computeBucketBounds(plan, index), traces })),
  };
}

export const createTooManyRowsError = (max: number) =>
  runlakeError('BAD_REQUEST', {
    reason: `The report has more than ${max.toLocaleString('en')} rows. Ask for a shorter range, fewer workspaces, or group by project.`,
  });

/** Reads the rows of a query for counts. @throws BAD_REQUEST if they have more than `max` counts. */
async function readCounts(
  clickhouse: UsageReportDeps['clickhouse'],
  query: Query,
  max: number,
): Promise<UsageCounts[]> {
  const counts = await clickhouse.query<UsageCounts & { readonly report_rows: number }>({
    ...query,
    // If there are too many, ClickHouse does not send them.
    sql: `SELECT bucket, report_rows, if(report_rows > {max_rows:UInt64}, [], bucket_ids) AS ids,
            if(report_rows > {max_rows:UInt64}, [], bucket_traces) AS traces
          FROM (SELECT bucket, ids AS bucket_ids, traces AS bucket_traces, sum(length(ids)) OVER () AS report_rows FROM (
${query.sql}
))`,
    params: { ...query.params, max_rows: max },
  });
  if ((counts[0]?.report_rows ?? 0) > max) throw createTooManyRowsError(max);
  return counts;
}

function* collectIds(counts: readonly UsageCounts[]): StepwiseWork<string[]> {
  const found = new Set<string>();
  for (const { ids } of counts) {
    for (const [index, id] of ids.entries()) {
      if (index % itemsPerStep === 0) yield;
      found.add(id);
    }
  }
  return [...found];
}

/** Generates the non-zero cells of a report, ordered by bucket, then by dimension. */
export function* generateUsageRows({ buckets, dimensions }: GranularUsage): Generator<UsageRow> {
  for (const { startSeconds, endSeconds, traces } of buckets) {
    for (const [index, dimension] of dimensions.entries()) {
      if (traces[index] !== 0) yield { startSeconds, endSeconds, dimensions: dimension, traces: traces[index]! };
    }
  }
}

/**
 * Sums the counts by bucket and label. Ids with equal labels, such as two keys with the same short form, are added up.
 */
function* sumBuckets(
  counts: readonly UsageCounts[],
  ranks: ReadonlyMap<string, number>,
  width: number,
): StepwiseWork<ReadonlyMap<number, Float64Array>> {
  const buckets = new Map<number, Float64Array>();
  for (const { bucket: index, ids, traces } of counts) {
    const bucket = buckets.get(index) ?? new Float64Array(width);
    buckets.set(index, bucket);
    for (const [entry, id] of ids.entries()) {
      if (entry % itemsPerStep === 0) yield;
      const rank = ranks.get(id)!;
      bucket[rank] = bucket[rank]! + traces[entry]!;
    }
  }
  return buckets;
}

interface Label {
  readonly text: string;
  readonly dimensions: Dimensions;
  readonly ids: string[];
}

interface RankedLabels {
  readonly ranks: ReadonlyMap<string, number>;
  readonly dimensions: readonly Dimensions[];
}

/**
 * Returns the distinct labels in order and, for each id, the index of its label. Ids with equal labels, such as two keys
 * with the same short form, share one.
 */
function* rankLabels(groupBy: Grouping, ids: readonly string[], names: NamesById): StepwiseWork<RankedLabels> {
  const labels = new Map<string, Label>();
  for (const [index, id] of ids.entries()) {
    if (index % itemsPerStep === 0) yield;
    const dimensions = buildDimensions(groupBy, id === nilUuid ? null : id, names.get(id) ?? null);
    const text = JSON.stringify(Object.values(dimensions));
    const label = labels.get(text);
    if (label === undefined) labels.set(text, { text, dimensions, ids: [id] });
    else label.ids.push(id);
  }
  const ordered = yield* sortInSteps([...labels.values()], (one, other) => (one.text < other.text ? -1 : 1));
  const ranks = new Map<string, number>();
  for (const [rank, label] of ordered.entries()) {
    if (rank % itemsPerStep === 0) yield;
    for (const id of label.ids) ranks.set(id, rank);
  }
  return { ranks, dimensions: ordered.map(({ dimensions }) => dimensions) };
}

export function buildDimensions(groupBy: Grouping, id: string | null, name: string | null): Dimensions {
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
  /** Traces by workspace id; workspaces without traces are omitted. */
  readonly byWorkspace: Readonly<Record<string, number>>;
}

/**
 * Counts the traces of a whole range by workspace. The result equals the sum over the buckets of {@link readGranularUsage}.
 *
 * @throws the errors of {@link readGranularUsage}.
 */
export async function readOrganizationUsage(
  deps: UsageReportDeps,
  request: Omit<GranularUsageRequest, 'groupBy'>,
): Promise<OrganizationUsage> {
  const usage = await readGranularUsage(deps, { ...request, groupBy: 'workspace' });
  const byWorkspace: Record<string, number> = {};
  let total = 0;
  for (const { dimensions, traces } of generateUsageRows(usage)) {
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
