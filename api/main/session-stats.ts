import { Type } from 'typebox';
import { Dictionary } from '../../infra/json/dictionary.ts';
import type { ProjectWithStats } from '../../pipelines/projects/list-by-stats.ts';
import { parseRunFilter } from '../../pipelines/runs/filter/run-filter.ts';
import type { RunFilterConditions } from '../../pipelines/runs/filter/sql-terms.ts';
import type { StatName } from '../../pipelines/runs/stats/stat-names.ts';
import { JsonObject, nullable, Timestamp, Uuid } from '../server/formats.ts';
import { RunStats as RunStatsShape, selectStats } from './run-stats.ts';
import { Time } from './runs.ts';

/** Run statistics of a project in a response. Costs are decimal numbers as text. */
const sessionStats = [
  'run_count',
  'latency_p50',
  'latency_p99',
  'first_token_p50',
  'first_token_p99',
  'total_tokens',
  'prompt_tokens',
  'completion_tokens',
  'total_cost',
  'prompt_cost',
  'completion_cost',
  'last_run_start_time',
  'feedback_stats',
  'run_facets',
  'error_rate',
  'streaming_rate',
] as const satisfies readonly StatName[];

const costStatNames: readonly string[] = ['total_cost', 'prompt_cost', 'completion_cost'];
const Cost = () => nullable(Type.String({ description: 'Decimal as text.' }));

const { total_cost: _total, prompt_cost: _prompt, completion_cost: _completion, ...others } = RunStatsShape.properties;

/** Fields of a project in responses. */
export const sessionFields = {
  id: Uuid(),
  tenant_id: Uuid({ description: 'Id of the workspace.' }),
  name: Type.String(),
  description: nullable(Type.String()),
  extra: nullable(JsonObject()),
  start_time: Timestamp(),
  end_time: nullable(Timestamp()),
  default_dataset_id: nullable(Uuid()),
  reference_dataset_id: nullable(Uuid()),
  trace_tier: nullable(Type.String()),
  longlived_ttl_days: nullable(Type.Integer()),
  num_examples: nullable(Type.Integer()),
  num_repetitions: nullable(Type.Integer()),
  evaluator_keys: nullable(Type.Array(Type.String())),
  last_run_start_time_live: nullable(Time()),
};

/** Statistics of a project. Statistics that are not requested are null. */
export const sessionStatsFields = {
  ...Type.Required(
    Type.Pick(
      Type.Object(others),
      sessionStats.filter((name) => !costStatNames.includes(name)),
    ),
  ).properties,
  total_cost: Cost(),
  prompt_cost: Cost(),
  completion_cost: Cost(),
  session_feedback_stats: nullable(
    Dictionary(JsonObject(), {
      description: 'Of the feedback on the project itself, such as that of summary evaluators, by feedback key.',
    }),
  ),
  test_run_number: nullable(
    Type.Integer({ description: 'Position among the experiments on the dataset, from 1, by creation.' }),
  ),
};

/** Parameters of operations that return projects with statistics. */
export const statsParameters = {
  include_stats: Type.Optional(
    Type.Boolean({
      description:
        'Statistics of the root runs. They need the permission `runs:read`. By default they are null, except `run_count` ' +
        'of an experiment that is read by its id or name with this permission.',
    }),
  ),
  stats_start_time: Type.Optional(Timestamp({ description: 'Statistics of runs that started at or after this time.' })),
};

/**
 * Returns an object with all properties of `schema`, which are null. Copying it and replacing values takes a hundredth of
 * the time of adding as many properties to an object.
 */
export function buildNullRecord(schema: { readonly properties: object }): Record<string, null> {
  return Object.fromEntries(Object.keys(schema.properties).map((name) => [name, null]));
}

/** Formats the requested statistics of a project, and its number, for a response. */
export function formatSessionStats({ stats, ownFeedback, testRunNumber }: Partial<ProjectWithStats>) {
  const formattedStats: Record<string, unknown> = {
    last_run_start_time_live: stats?.last_run_start_time ?? null,
    session_feedback_stats: ownFeedback ?? null,
    test_run_number: testRunNumber ?? null,
  };
  for (const [name, value] of Object.entries(stats ?? {}))
    formattedStats[name] = costStatNames.includes(name) && value !== null ? formatDecimal(Number(value)) : value;
  return formattedStats;
}

/** Formats a number without an exponent, because costs are often less than a millionth. */
function formatDecimal(value: number): string {
  const text = String(value);
  return text.includes('e') ? value.toFixed(20).replace(/\.?0+$/, '') : text;
}

/**
 * Returns the project statistics listed in `select`. If `select` is absent, returns all of them; in that case facets
 * are included only if `includeFacets` is true.
 */
export function selectSessionStats(
  select: readonly string[] | undefined,
  includeFacets: boolean,
): ReadonlySet<StatName> {
  const selected = selectStats(select);
  return new Set(
    sessionStats.filter(
      (name) => selected.has(name) && (name !== 'run_facets' || includeFacets || select !== undefined),
    ),
  );
}

/** Whether the statistics listed in `select` include those of the feedback on the project itself. */
export const selectsOwnFeedback = (select: readonly string[] | undefined): boolean =>
  select === undefined || select.length === 0 || select.includes('session_feedback_stats');

/** Parses the conditions on root runs in the parameter `stats_filter`. @throws INVALID_FILTER */
export function parseStatsFilter(text: string | undefined): RunFilterConditions | undefined {
  return text ? { run: [parseRunFilter('stats_filter', text)], trace: [], tree: [] } : undefined;
}
