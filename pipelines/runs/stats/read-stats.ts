/**
 * Statistics of runs. Run queries, projects and threads use the same function, so that their statistics agree.
 * ClickHouse computes all statistics on request from merged rows; percentiles are exact and interpolated.
 *
 *   1. One query counts the matching runs by group. It also selects the groups, largest first.
 *   2. Tokens and costs (`figure-sums.ts`), details and feedback are read for these groups, each with one query, and
 *      only if they are selected. Without groups, this does not wait for step 1.
 */
import type { ClickHouse } from '../../../infra/clickhouse/clickhouse.ts';
import type { Database } from '../../../infra/postgres/pool.ts';
import { readFeedbackStatsByTarget } from '../../feedback/feedback-stats.ts';
import { formatTime } from '../../ingest/run-event/times.ts';
import { readDirtyHours } from './fact-rows.ts';
import { buildDetailQuery, buildFigureQuery, type DetailRow, type FigureRow } from './figure-sums.ts';
import { buildStatRows, canReadFacts, type ListedRun, type RunSet } from './matching-runs.ts';
import { detailStats, type FacetName, figureStats, type RunFacet, type RunStats, type StatName } from './stat-names.ts';

export interface StatsRequest extends RunSet {
  readonly selected: ReadonlySet<StatName>;
  /** Maximum number of groups; the groups with the most runs are returned. */
  readonly maxGroups?: number;
}

interface CountRow {
  readonly grp: string;
  readonly runs: number;
  readonly latencies: readonly [number | null, number | null];
  readonly latency_avg: number | null;
  readonly first_tokens: readonly [number | null, number | null];
  readonly error_rate: number;
  readonly streaming_rate: number;
  readonly last_start: number;
  /** Ids and traces of the runs, at most one more than {@link maxListedRuns}. */
  readonly listed?: readonly (readonly [id: string, traceId: string])[];
  readonly facets?: Readonly<Record<FacetName, readonly (readonly [value: string, count: number, error: number])[]>>;
}

/** Name of the group that contains all runs if the runs are not grouped. */
export const wholeSetGroup = '';

const defaultMaxGroups = 1_000;
/**
 * Maximum number of runs of a group that the first query lists if the groups are given, such as the threads of a page. The
 * analysis of the conditions takes most of the time of such a query, and step 2 would repeat it seven times.
 */
const maxListedRuns = 200;
const maxFacetValues = 10;
const toFacetSql = (column: string) => `topK(${maxFacetValues}, 100, 'counts')(${column})`;
/** The most frequent values of each facet with their counts, as SQL over rows of `statColumns`. */
const facetSqls = {
  name: toFacetSql('shown_name'),
  run_type: toFacetSql('shown_type'),
  // Counting the three values takes half of the time of `topK`.
  status: `arrayReverseSort(facet -> facet.2, arrayFilter(facet -> facet.2 > 0, [('error', countIf(failed), 0),
    ('success', countIf(NOT failed AND isNotNull(latency)), 0), ('pending', countIf(NOT failed AND isNull(latency)), 0)]))`,
} as const satisfies Record<FacetName, string>;

/**
 * Reads the selected statistics by group, the group with the most runs first. Without `groupBy` there is one group,
 * {@link wholeSetGroup}; groups without runs are omitted.
 *
 * @param database If present, facts of runs are used instead of the runs themselves where they suffice and are up to date.
 * @throws errors of the stores.
 */
export async function readRunStats(
  clickhouse: ClickHouse,
  query: StatsRequest,
  database?: Pick<Database, 'query'>,
): Promise<Map<string, RunStats>> {
  const { scope, selected, groupBy } = query;
  if (scope.projectIds.length === 0 || query.among?.length === 0) return new Map();
  const dirtyHours = database && canReadFacts(query) ? await readDirtyHours(database, scope.tenantId) : undefined;
  const request = { ...query, dirtyHours };
  const [counts, sums] =
    groupBy === undefined
      ? await Promise.all([countRuns(clickhouse, request), readSums(clickhouse, request)])
      : await readGroups(clickhouse, request);
  const { figures, details, figureRows, detailRows, feedback } = sums;
  const figuresByGroup = new Map(figureRows.map((row) => [row.grp, row]));
  const detailsByGroup = groupRows(detailRows);
  return new Map(
    counts.map((row) => {
      const group = row.grp;
      const stats: RunStats = {
        ...formatCounts(row),
        // There can be a hundred thousand groups: only what is selected is formatted.
        ...(figures.length > 0 && formatFigures(figuresByGroup.get(group))),
        ...(details.length > 0 && formatDetails(detailsByGroup.get(group) ?? [])),
        feedback_stats: feedback?.get(group) ?? {},
      };
      return [group, Object.fromEntries(Object.entries(stats).filter(([name]) => selected.has(name as StatName)))];
    }),
  );
}

/** Counts the runs by group, and reads the sums of the groups found. */
async function readGroups(clickhouse: ClickHouse, request: StatsRequest): Promise<[CountRow[], Sums]> {
  const counts = await countRuns(clickhouse, request);
  // The queries must list the groups only if there may be more groups than the maximum.
  const isLimitReached = counts.length >= (request.maxGroups ?? defaultMaxGroups);
  const groups = isLimitReached ? { groups: counts.map(({ grp }) => grp) } : {};
  const selected = counts.length === 0 ? new Set<StatName>() : request.selected;
  return [counts, await readSums(clickhouse, { ...request, ...groups, listed: listRuns(counts), selected })];
}

type Sums = Awaited<ReturnType<typeof readSums>>;

/** Executes step 2. */
async function readSums(clickhouse: ClickHouse, request: StatsRequest) {
  const { selected } = request;
  const figures = figureStats
    .filter(({ stats }) => stats.some((name) => selected.has(name)))
    .map(({ figure, stats: [, ...percentiles] }) => ({
      figure,
      hasPercentiles: percentiles.some((name) => selected.has(name)),
    }));
  const details = detailStats.filter((name) => selected.has(name));
  const [figureRows, detailRows, feedback] = await Promise.all([
    figures.length > 0 ? clickhouse.query<FigureRow>(buildFigureQuery(request, figures)) : [],
    details.length > 0 ? clickhouse.query<DetailRow>(buildDetailQuery(request)) : [],
    selected.has('feedback_stats') ? readFeedbackByGroup(clickhouse, request) : undefined,
  ]);
  return { figures, details, figureRows, detailRows, feedback };
}

/** Returns the runs of all groups; undefined if the first query did not list all of them. */
function listRuns(counts: readonly CountRow[]): ListedRun[] | undefined {
  const runs = counts.flatMap(({ grp: group, listed = [] }) => listed.map(([id, traceId]) => ({ id, traceId, group })));
  return counts.every(({ runs: count, listed }) => listed?.length === count) ? runs : undefined;
}

function groupRows(rows: readonly DetailRow[]): Map<string, DetailRow[]> {
  const groups = new Map<string, DetailRow[]>();
  for (const row of rows) {
    const group = groups.get(row.grp);
    if (group === undefined) groups.set(row.grp, [row]);
    else group.push(row);
  }
  return groups;
}

/** Returns the statistics of a set without runs. */
export function createEmptyStats(selected: ReadonlySet<StatName>): RunStats {
  const counted = {
    run_count: 0,
    latency_p50: null,
    latency_p99: null,
    latency_avg: null,
    first_token_p50: null,
    first_token_p99: null,
  };
  const rates = {
    error_rate: null,
    streaming_rate: null,
    last_run_start_time: null,
    run_facets: [],
    feedback_stats: {},
  };
  const stats: RunStats = { ...counted, ...rates, ...formatFigures(undefined), ...formatDetails([]) };
  return Object.fromEntries(Object.entries(stats).filter(([name]) => selected.has(name as StatName)));
}

async function countRuns(clickhouse: ClickHouse, request: StatsRequest): Promise<CountRow[]> {
  const { selected, groupBy, groups, maxGroups = defaultMaxGroups } = request;
  const facets = selected.has('run_facets') ? Object.entries(facetSqls) : [];
  const { sql, ...query } = buildStatRows(request, [
    'started',
    'latency',
    'first_token',
    'failed',
    ...(facets.length > 0 ? (['shown_name', 'shown_type'] as const) : []),
    ...(groups === undefined ? [] : (['id', 'trace_id'] as const)),
  ]);
  // A query has only one external table.
  const listsRuns = groups !== undefined && query.externalTable === undefined;
  const facetSql = `tuple(${facets.map(([name, sql]) => `${sql} AS ${name}`).join(', ')})`;
  const facetType = `Tuple(${facets.map(([name]) => `${name} Array(Tuple(String, UInt64, UInt64))`).join(', ')})`;
  return clickhouse.query<CountRow>({
    ...query,
    name: 'run-stats',
    sql: `SELECT grp, count() AS runs, quantilesExactInclusive(0.5, 0.99)(latency) AS latencies, avg(latency) AS latency_avg,
        quantilesExactInclusive(0.5, 0.99)(first_token) AS first_tokens, avg(failed) AS error_rate,
        avg(isNotNull(first_token)) AS streaming_rate, max(started) AS last_start
        ${listsRuns ? `, groupArray(${maxListedRuns + 1})((id, trace_id)) AS listed` : ''}
        ${facets.length > 0 ? `, CAST(${facetSql}, '${facetType}') AS facets` : ''}
      FROM (${sql})
      GROUP BY grp
      ${groupBy === undefined ? '' : `ORDER BY runs DESC, grp LIMIT ${maxGroups}`}`,
  });
}

const toSeconds = (micros: number | null) => (micros === null ? null : micros / 1e6);

function formatCounts(row: CountRow): RunStats {
  return {
    run_count: row.runs,
    latency_p50: toSeconds(row.latencies[0]),
    latency_p99: toSeconds(row.latencies[1]),
    latency_avg: toSeconds(row.latency_avg),
    first_token_p50: toSeconds(row.first_tokens[0]),
    first_token_p99: toSeconds(row.first_tokens[1]),
    error_rate: row.error_rate,
    streaming_rate: row.streaming_rate,
    last_run_start_time: formatTime(row.last_start),
    run_facets: row.facets ? formatFacets(row.facets) : [],
  };
}

function formatFacets(facets: NonNullable<CountRow['facets']>): RunFacet[] {
  return (Object.keys(facetSqls) as FacetName[]).flatMap((name) =>
    facets[name]
      // ClickHouse returns values with the same number of runs in any order.
      .toSorted(([one, oneCount], [other, otherCount]) => otherCount - oneCount || (one < other ? -1 : 1))
      .map(([value, n]) => ({ key: name, value, query: `eq(${name}, ${JSON.stringify(value)})`, n })),
  );
}

function formatFigures(row: FigureRow | undefined): RunStats {
  return Object.fromEntries(
    figureStats.flatMap(({ figure, stats: [total, p50, p99] }) => {
      const isCost = figure.endsWith('cost');
      const [median, high] = row?.[`${figure}_percentiles`] ?? [];
      const format = (value: number | null | undefined) => (value == null ? null : isCost ? value : Math.round(value));
      return [
        [total, row?.[figure] ?? (isCost ? null : 0)],
        ...(p50 === undefined ? [] : [[p50, format(median)]]),
        ...(p99 === undefined ? [] : [[p99, format(high)]]),
      ];
    }),
  );
}

function formatDetails(rows: readonly DetailRow[]): RunStats {
  return Object.fromEntries(
    detailStats.map((name) => {
      const matchingRows = rows.filter(({ kind }) => kind.startsWith(`${name}.`));
      const sums = matchingRows.map(({ kind, total }) => [kind.slice(name.length + 1), Number(total)] as const);
      return [name, Object.fromEntries(sums)];
    }),
  );
}

async function readFeedbackByGroup(clickhouse: ClickHouse, set: RunSet) {
  const ratedCondition = 'id IN (SELECT run_id FROM feedback WHERE tenant_id = {tenant:UUID})';
  const { sql, ...query } = buildStatRows(set, ['id'], ratedCondition);
  const stats = await readFeedbackStatsByTarget(clickhouse, {
    ...query,
    runs: `(SELECT id AS run_id, grp AS target FROM (${sql}))`,
  });
  return new Map(
    [...stats].map(([group, json]) => [group, JSON.parse(json) as Record<string, Record<string, unknown>>]),
  );
}
