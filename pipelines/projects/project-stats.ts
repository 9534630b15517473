import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { reserveTexts } from '../../infra/fairness/tenant-context.ts';
import { requireWithin } from '../../infra/postgres/page-within.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import { readFeedbackStatsByProject } from '../feedback/feedback-stats.ts';
import type { RunFilterConditions } from '../runs/filter/sql-terms.ts';
import { metadataPairs } from '../runs/run-columns.ts';
import { projectGrouping } from '../runs/stats/grouping.ts';
import { buildMatchingRuns, type RunSet } from '../runs/stats/matching-runs.ts';
import { createEmptyStats, readRunStats } from '../runs/stats/read-stats.ts';
import type { RunStats, StatName } from '../runs/stats/stat-names.ts';
import type { ProjectRecord } from './project.ts';

/** The root runs from which the statistics of projects are computed. */
export interface ProjectStatsQuery {
  readonly tenantId: string;
  readonly projectIds: readonly string[];
  readonly startedFromMicros?: number | undefined;
  readonly conditions?: RunFilterConditions | undefined;
}

function buildRunSet({ tenantId, projectIds, startedFromMicros, conditions }: ProjectStatsQuery): RunSet {
  return { scope: { tenantId, projectIds }, filter: { isRoot: true, startedFromMicros, conditions } };
}

/** Reads statistics of the root runs of each project, including projects without runs. @throws errors of the stores. */
export async function readProjectStats(
  { clickhouse, database }: { readonly clickhouse: ClickHouse; readonly database: Pick<Database, 'query'> },
  query: ProjectStatsQuery,
  selected: ReadonlySet<StatName>,
): Promise<Map<string, RunStats>> {
  const maxGroups = query.projectIds.length + 1;
  const request = { ...buildRunSet(query), groupBy: projectGrouping, selected, maxGroups };
  const stats = await readRunStats(clickhouse, request, database);
  // One object for all projects without runs, of which there can be a hundred thousand.
  const empty = createEmptyStats(selected);
  return new Map(query.projectIds.map((id) => [id, stats.get(id) ?? empty]));
}

/**
 * Counts the root runs of those projects that are experiments. `evaluateComparative` of the JavaScript SDK reads an
 * experiment without statistics until `run_count` is the number of its results.
 *
 * @throws errors of the stores.
 */
export async function countExperimentRuns(
  deps: Parameters<typeof readProjectStats>[0],
  tenantId: string,
  projects: readonly Pick<ProjectRecord, 'id' | 'reference_dataset_id'>[],
): Promise<Map<string, RunStats>> {
  const projectIds = projects.filter(({ reference_dataset_id }) => reference_dataset_id !== null).map(({ id }) => id);
  if (projectIds.length === 0) return new Map();
  return readProjectStats(deps, { tenantId, projectIds }, new Set(['run_count']));
}

/** Statistics of feedback by feedback key. */
export type FeedbackStats = NonNullable<RunStats['feedback_stats']>;

/**
 * Reads statistics of the feedback on each project itself, by project and feedback key.
 *
 * @throws errors of ClickHouse.
 */
export async function readOwnFeedbackStats(
  clickhouse: ClickHouse,
  tenantId: string,
  projectIds: readonly string[],
): Promise<Map<string, FeedbackStats>> {
  const stats = await readFeedbackStatsByProject(clickhouse, tenantId, projectIds);
  return new Map(projectIds.map((id) => [id, JSON.parse(stats.get(id) ?? '{}') as FeedbackStats]));
}

interface MetadataQuery {
  readonly tenantId: string;
  readonly projectId: string;
  /** Keys to read. Default: all keys. Nested keys are joined by dots. */
  readonly keys?: readonly string[] | undefined;
  readonly startedFromMicros?: number | undefined;
  readonly rootsOnly: boolean;
  /** Maximum number of values per key. */
  readonly maxValues: number;
  /** Maximum size of several values together. */
  readonly maxBytes: number;
}

const maxKeys = 1_000;

/**
 * Reads the most frequent metadata values of runs, by key.
 *
 * @throws ANSWER_TOO_LARGE; OVERLOADED; errors of ClickHouse.
 */
export async function readTopMetadata(clickhouse: ClickHouse, query: MetadataQuery): Promise<Map<string, string[]>> {
  const { tenantId, projectId, keys, startedFromMicros, rootsOnly, maxValues, maxBytes } = query;
  const filter = { startedFromMicros, ...(rootsOnly && { isRoot: true }) };
  const { sql, params, ...rest } = buildMatchingRuns(
    { scope: { tenantId, projectIds: [projectId] }, filter },
    metadataPairs,
  );
  const rows = await clickhouse.query<{ key: string; values: string[]; count: number; bytes: number }>({
    ...rest,
    params: { ...params, ...(keys && { keys }), max_values: maxValues, max_bytes: maxBytes },
    name: 'top-metadata',
    // Values that are too large together are not returned.
    sql: `SELECT key, if(bytes > {max_bytes:UInt64} AND count > 1, [], listed) AS values, count, bytes FROM (
            SELECT *, sum(length(listed)) OVER () AS count, sum(key_bytes) OVER () AS bytes FROM (
              SELECT key, groupArray(value) AS listed, length(key) + sum(length(value)) AS key_bytes FROM (
                SELECT pair.1 AS key, assumeNotNull(pair.2) AS value, count() AS runs FROM (${sql})
                ARRAY JOIN arrayDistinct(metadata_pairs) AS pair
                WHERE isNotNull(pair.2) ${keys === undefined ? '' : 'AND pair.1 IN {keys:Array(String)}'}
                GROUP BY key, value ORDER BY runs DESC, value LIMIT {max_values:UInt64} BY key)
              GROUP BY key ORDER BY key LIMIT ${maxKeys}))
          ORDER BY key`,
  });
  const [{ count, bytes } = { count: 0, bytes: 0 }] = rows;
  requireWithin(count, bytes, maxBytes);
  reserveTexts(bytes);
  return new Map(rows.map(({ key, values }) => [key, values]));
}
