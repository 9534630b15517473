import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import type { PageRequest } from '../../infra/postgres/list-page.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import type { RunStats, StatName } from '../runs/stats/stat-names.ts';
import {
  findProjectIds,
  listProjects,
  numberExperiments,
  type ProjectConditions,
  type ProjectRecord,
} from './project.ts';
import {
  countExperimentRuns,
  type FeedbackStats,
  type ProjectStatsQuery,
  readOwnFeedbackStats,
  readProjectStats,
} from './project-stats.ts';

/** Sort orders of projects that need statistics of their runs, each with the statistic that it uses. */
export const statOrders = {
  last_run_start_time: 'last_run_start_time',
  latency_p50: 'latency_p50',
  latency_p99: 'latency_p99',
  error_rate: 'error_rate',
  feedback: 'feedback_stats',
  runs_count: 'run_count',
} as const satisfies Record<string, StatName>;

export type StatOrder = keyof typeof statOrders;

export interface StatsListQuery extends PageRequest {
  readonly conditions: ProjectConditions;
  readonly sortBy: 'name' | 'start_time' | StatOrder;
  /** Feedback key whose average score is used by the order `feedback`. */
  readonly feedbackKey?: string | undefined;
  /** Whether the order `feedback` uses the feedback on root runs (default) or on the projects themselves. */
  readonly feedbackSource?: 'run' | 'session' | undefined;
  /** The runs from which the statistic of the sort order is computed. */
  readonly runs: Pick<ProjectStatsQuery, 'startedFromMicros' | 'conditions'>;
  readonly descending: boolean;
}

/**
 * Like {@link listProjects}, but can also sort by a statistic. Projects without a value come last; the id breaks ties.
 *
 * @throws errors of the stores.
 */
async function listProjectsByStats(
  { clickhouse, database }: { readonly clickhouse: ClickHouse; readonly database: Database },
  tenantId: string,
  query: StatsListQuery,
): Promise<ProjectRecord[]> {
  const { conditions, sortBy, descending, limit, offset } = query;
  if (sortBy === 'name' || sortBy === 'start_time')
    return listProjects(database, tenantId, { ...conditions, sortBy, descending, limit, offset });
  const projectIds = await findProjectIds(database, tenantId, conditions);
  const stat = statOrders[sortBy];
  const sortsByProjectFeedback = sortBy === 'feedback' && query.feedbackSource === 'session';
  const stats = sortsByProjectFeedback
    ? wrapFeedbackStats(await readOwnFeedbackStats(clickhouse, tenantId, projectIds))
    : await readProjectStats({ clickhouse, database }, { tenantId, projectIds, ...query.runs }, new Set([stat]));
  const ids = sortProjectIds(stats, (each) => readValue(each, stat, query.feedbackKey), descending).slice(
    offset,
    offset + limit,
  );
  const page = { sortBy: 'start_time', descending, limit: ids.length, offset: 0 } as const;
  const projects = await listProjects(database, tenantId, { ids, ...page });
  const place = new Map(ids.map((id, index) => [id, index]));
  return projects.sort((a, b) => (place.get(a.id) ?? 0) - (place.get(b.id) ?? 0));
}

function wrapFeedbackStats(feedback: ReadonlyMap<string, FeedbackStats>): Map<string, RunStats> {
  return new Map([...feedback].map(([id, feedback_stats]) => [id, { feedback_stats }]));
}

/** A project of a list, and its statistics if any are selected. */
export interface ProjectWithStats {
  readonly project: ProjectRecord;
  /** Position among the experiments on its dataset; undefined if the project is no experiment. */
  readonly testRunNumber: number | undefined;
  readonly stats: RunStats | undefined;
  /** Statistics of the feedback on the project itself. */
  readonly ownFeedback: FeedbackStats | undefined;
}

/** The statistics that a list of projects contains. */
export interface SelectedStats {
  /** `experiment-count`: only the number of root runs, and only of experiments. */
  readonly ofRuns: ReadonlySet<StatName> | 'experiment-count' | undefined;
  readonly ownFeedback: boolean;
}

/** As {@link listProjectsByStats}, with the selected statistics. @throws errors of the stores. */
export async function readProjectsWithStats(
  deps: { readonly clickhouse: ClickHouse; readonly database: Database },
  tenantId: string,
  query: StatsListQuery,
  selected: SelectedStats,
): Promise<ProjectWithStats[]> {
  const projects = await listProjectsByStats(deps, tenantId, query);
  const projectIds = projects.map(({ id }) => id);
  const [numbers, stats, ownFeedback] = await Promise.all([
    numberExperiments(deps.database, tenantId, projects),
    selected.ofRuns === 'experiment-count'
      ? countExperimentRuns(deps, tenantId, projects)
      : selected.ofRuns && readProjectStats(deps, { tenantId, projectIds, ...query.runs }, selected.ofRuns),
    selected.ownFeedback ? readOwnFeedbackStats(deps.clickhouse, tenantId, projectIds) : undefined,
  ]);
  return projects.map((project) => ({
    project,
    testRunNumber: numbers.get(project.id),
    stats: stats?.get(project.id),
    ownFeedback: ownFeedback?.get(project.id),
  }));
}

type Value = number | string | null | undefined;

function readValue(stats: RunStats, stat: StatName, feedbackKey: string | undefined): Value {
  if (stat !== 'feedback_stats') return stats[stat] as Value;
  const feedbackEntry =
    feedbackKey === undefined
      ? undefined
      : Object.entries(stats.feedback_stats ?? {}).find(([key]) => key === feedbackKey);
  return feedbackEntry?.[1].avg as Value;
}

function sortProjectIds(
  stats: ReadonlyMap<string, RunStats>,
  read: (stats: RunStats) => Value,
  descending: boolean,
): string[] {
  const sign = descending ? -1 : 1;
  const compare = <T>(one: T, other: T) => (one === other ? 0 : one < other ? -1 : 1);
  return [...stats]
    .map(([id, each]) => ({ id, value: read(each) ?? undefined }))
    .sort((a, b) => {
      if (a.value === undefined || b.value === undefined)
        return Number(a.value === undefined) - Number(b.value === undefined) || sign * compare(a.id, b.id);
      return sign * (compare(a.value, b.value) || compare(a.id, b.id));
    })
    .map(({ id }) => id);
}
