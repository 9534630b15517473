import { type Static, Type } from 'typebox';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { Dictionary } from '../../infra/json/dictionary.ts';
import { readDatasetProjectIds } from '../../pipelines/runs/locate-run.ts';
import { findRunSet } from '../../pipelines/runs/query-runs.ts';
import { buildGrouping, groupAttributes } from '../../pipelines/runs/stats/grouping.ts';
import { createEmptyStats, readRunStats, wholeSetGroup } from '../../pipelines/runs/stats/read-stats.ts';
import { type StatName, statNames } from '../../pipelines/runs/stats/stat-names.ts';
import { JsonObject, jsonMediaType, nullable, OneOf, optional, Uuid } from '../server/formats.ts';
import { defineOperation, RawResponse } from '../server/operation.ts';
import { clickhouseErrors } from '../server/operation-errors.ts';
import type { Services } from '../server/services.ts';
import { normaliseIds, readRunSet, runSetFields, Time } from './runs.ts';

const Seconds = (description?: string) => nullable(Type.Number(description ? { description } : {}));
const Count = () => nullable(Type.Integer());
const Cost = () => nullable(Type.Number());
const Sums = () => nullable(Dictionary(Type.Number()));

/** Statistics of a set of runs. A response contains only the selected statistics. */
export const RunStats = Type.Partial(
  Type.Object({
    run_count: Count(),
    latency_p50: Seconds('Of the runs that have ended, in seconds. Percentiles are exact and interpolated.'),
    latency_p99: Seconds(),
    latency_avg: Seconds(),
    first_token_p50: Seconds('From the start of a model call to its first token, in seconds.'),
    first_token_p99: Seconds(),
    total_tokens: nullable(Type.Integer({ description: 'Every model call counts once, see the guide.' })),
    median_tokens: nullable(
      Type.Integer({
        description: 'Of the topmost matching runs above model calls, rounded, like all token percentiles.',
      }),
    ),
    tokens_p99: Count(),
    prompt_tokens: Count(),
    prompt_tokens_p50: Count(),
    prompt_tokens_p99: Count(),
    completion_tokens: Count(),
    completion_tokens_p50: Count(),
    completion_tokens_p99: Count(),
    total_cost: nullable(Type.Number({ description: 'Null if no run states a cost.' })),
    cost_p50: Cost(),
    cost_p99: Cost(),
    prompt_cost: Cost(),
    completion_cost: Cost(),
    last_run_start_time: nullable(Time()),
    feedback_stats: nullable(Dictionary(JsonObject())),
    run_facets: nullable(
      Type.Array(
        Type.Object({
          key: Type.String(),
          value: Type.String(),
          query: Type.String({ description: 'Filter that selects these runs.' }),
          n: Type.Integer({ description: 'Approximate if the field has more than a thousand values.' }),
        }),
      ),
    ),
    error_rate: nullable(Type.Number({ description: 'Share of the runs that failed, from 0 to 1.' })),
    streaming_rate: nullable(
      Type.Number({ description: 'Share of the runs that are model calls with a first token.' }),
    ),
    prompt_token_details: Sums(),
    completion_token_details: Sums(),
    prompt_cost_details: Sums(),
    completion_cost_details: Sums(),
  }),
);

/** Names that select several statistics at once, or statistics that runs do not have. */
const groupSelects = [
  'all_run_stats',
  'all_token_stats',
  'thread_feedback_stats',
  'session_feedback_stats',
  'group_count',
] as const;
export const statSelects = [...statNames, ...groupSelects];

const tokenStats = statNames.filter((name) => /token|cost/.test(name) && !name.startsWith('first_token'));

/** Returns the statistics listed in `select`, or all statistics if `select` is absent. */
export function selectStats(select: readonly string[] | null | undefined): ReadonlySet<StatName> {
  if (select == null || select.length === 0) return new Set(statNames);
  const names = new Set<string>(select);
  if (names.has('all_token_stats')) for (const name of tokenStats) names.add(name);
  if (names.has('all_run_stats')) for (const name of statNames) if (!tokenStats.includes(name)) names.add(name);
  return new Set(statNames.filter((name) => names.has(name)));
}

const maxGroups = 100;
const defaultGroups = 5;

const GroupBy = Type.Object({
  attribute: OneOf(groupAttributes),
  path: optional(
    Type.String({ minLength: 1, maxLength: 1_000, description: 'Key of the metadata; nested keys have dots.' }),
  ),
  max_groups: optional(
    Type.Integer({
      minimum: 1,
      maximum: maxGroups,
      description: `Groups with the most runs. Default: ${defaultGroups}, or the number of \`groups\`.`,
    }),
  ),
});

const StatsQuery = Type.Object({
  ...runSetFields,
  reference_dataset_id: optional(Uuid({ description: 'Only runs of the experiments on this dataset.' })),
  group_by: optional(GroupBy),
  groups: optional(Type.Array(Type.String(), { maxItems: maxGroups, description: 'Only these groups.' })),
  select: optional(Type.Array(OneOf(statSelects), { maxItems: 200 })),
});

/** Schema that operations with run statistics share. */
export const statsSchema = {
  body: StatsQuery,
  response: { 200: Type.Union([RunStats, Dictionary(RunStats)]) },
  // The handler serialises the response: a schema cannot distinguish statistics from a map of groups, because a group may
  // have any name.
  produces: jsonMediaType,
} as const;

/**
 * Reads the statistics of the runs that a request selects, as JSON.
 *
 * @param projectIds Projects that replace those of the request.
 * @throws BAD_REQUEST, INVALID_FILTER; errors of the stores.
 */
export async function readStatsOfQuery(
  services: Services,
  tenantId: string,
  body: Static<typeof StatsQuery>,
  projectIds?: readonly string[],
): Promise<Buffer> {
  const selected = selectStats(body.select);
  const groupBy = readGrouping(body.group_by);
  if (body.groups != null && groupBy === undefined)
    throw runlakeError('BAD_REQUEST', { reason: '`groups` needs `group_by`.' });
  const set = await findRunSet(services, { tenantId, ...readRunSet(body), ...(projectIds && { projectIds }) });
  const groups = body.groups ?? undefined;
  const maxGroups = body.group_by?.max_groups ?? groups?.length ?? defaultGroups;
  const query = { ...set, selected, groupBy, groups, maxGroups };
  const stats = await readRunStats(services.clickhouse, query, services.database);
  const response = groupBy ? Object.fromEntries(stats) : (stats.get(wholeSetGroup) ?? createEmptyStats(selected));
  return Buffer.from(JSON.stringify(response));
}

export const getRunStats = defineOperation({
  operationId: 'getRunStats',
  method: 'POST',
  path: '/runs/stats',
  summary: 'Get statistics of the runs that match a query',
  description:
    'Takes the filters of a query for runs. With `group_by`, the response has the statistics by group: a run with several tags, or ' +
    'a list of values in the metadata, is in several groups, and a run without the metadata key in none.',
  access: { permission: 'runs:read', tenantScope: 'workspace' },
  errors: ['BAD_REQUEST', 'INVALID_FILTER', ...clickhouseErrors],
  schema: statsSchema,
  handler: async ({ caller, body, services }) => {
    const projectIds = await readExperimentIds(services, caller.workspaceId, body);
    return new RawResponse({ body: await readStatsOfQuery(services, caller.workspaceId, body, projectIds) });
  },
});

/** Reads the ids of the experiments on the dataset that a request names, without those that `session` excludes. */
async function readExperimentIds({ database }: Services, workspaceId: string, body: Static<typeof StatsQuery>) {
  if (body.reference_dataset_id == null) return undefined;
  const experimentIds = await readDatasetProjectIds(database, workspaceId, body.reference_dataset_id);
  const projectIds = normaliseIds(body.session);
  if (projectIds === undefined) return experimentIds;
  const requested = new Set(projectIds);
  return experimentIds.filter((id) => requested.has(id));
}

function readGrouping(groupBy: Static<typeof GroupBy> | null | undefined) {
  if (groupBy == null) return undefined;
  if (groupBy.attribute === 'metadata' && groupBy.path == null)
    throw runlakeError('BAD_REQUEST', { reason: 'Grouping by metadata needs `path`, the key.' });
  return buildGrouping(groupBy.attribute, groupBy.path ?? '');
}
