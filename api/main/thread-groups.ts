import { type Static, Type } from 'typebox';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { Dictionary } from '../../infra/json/dictionary.ts';
import { parseRunFilters } from '../../pipelines/runs/filter/run-filter.ts';
import { requireProjects } from '../../pipelines/runs/locate-run.ts';
import type { RunStats, StatName } from '../../pipelines/runs/stats/stat-names.ts';
import { previewForms, readThreadPreviews } from '../../pipelines/runs/thread-preview.ts';
import { countThreads, queryThreads, readThreadsStats } from '../../pipelines/runs/threads.ts';
import { nullable, OneOf, optional, parseOptionalTime, Timestamp, Uuid } from '../server/formats.ts';
import { defineOperation } from '../server/operation.ts';
import { clickhouseErrors } from '../server/operation-errors.ts';
import type { Services } from '../server/services.ts';
import { addRunExtras } from './run-extras.ts';
import { RunStats as RunStatsShape, selectStats } from './run-stats.ts';
import {
  convertEmptyToNull,
  FeedbackStats,
  formatThreadSummary,
  readThreadScope,
  Sums,
  ThreadScopeFields,
  ThreadSummary,
} from './threads.ts';

const access = { permission: 'runs:read', tenantScope: 'workspace' } as const;
const errors = ['INVALID_FILTER', 'NOT_FOUND', ...clickhouseErrors] as const;
const defaultLimit = 10;

const GroupRequest = Type.Object({
  session_id: Uuid(),
  group_by: Type.Literal('conversation', { description: 'By thread.' }),
  filter: optional(Type.String({ description: 'Condition on the root run of a trace; see the guide.' })),
  start_time: optional(Timestamp({ description: 'Traces that started at or after this time.' })),
  end_time: optional(Timestamp({ description: 'Traces that started before this time.' })),
  offset: optional(Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER, default: 0 })),
  limit: optional(Type.Integer({ minimum: 1, maximum: 100, default: defaultLimit })),
});

async function readGroupScope({ database }: Services, tenantId: string, body: Static<typeof GroupRequest>) {
  const [projectId = ''] = await requireProjects(database, tenantId, [body.session_id.toLowerCase()]);
  const filter = {
    startedFromMicros: parseOptionalTime(body.start_time),
    startedBeforeMicros: parseOptionalTime(body.end_time),
    conditions: parseRunFilters({ filter: body.filter ?? null }),
  };
  return { tenantId, projectId, filter };
}

const groupRuns = defineOperation({
  operationId: 'groupRuns',
  method: 'POST',
  path: '/runs/group',
  summary: 'List the threads of a project',
  description: 'The thread with the newest trace first. Only traces that match the times and the filter count.',
  access,
  errors,
  schema: {
    body: GroupRequest,
    response: {
      200: Type.Object({
        groups: Type.Array(
          Type.Object({
            ...ThreadSummary.properties,
            filter: Type.String({ description: 'Filter that selects the runs of the thread.' }),
            group_key: Type.String({ description: 'The same as `thread_id`.' }),
          }),
        ),
        total: Type.Integer({ description: 'Number of threads.' }),
      }),
    },
  },
  handler: async ({ caller, body, services }) => {
    const scope = await readGroupScope(services, caller.workspaceId, body);
    const { threads, total } = await queryThreads(services.clickhouse, {
      ...scope,
      limitRows: body.limit ?? defaultLimit,
      offset: body.offset ?? 0,
    });
    const groups = threads.map((thread) => ({
      ...formatThreadSummary(thread),
      filter: `eq(thread_id, ${JSON.stringify(thread.threadId)})`,
      group_key: thread.threadId,
    }));
    return { groups, total };
  },
});

const getRunGroupStats = defineOperation({
  operationId: 'getRunGroupStats',
  method: 'POST',
  path: '/runs/group/stats',
  summary: 'Get statistics of the root runs of all threads of a project',
  access,
  errors,
  schema: {
    body: GroupRequest,
    response: { 200: Type.Object({ ...RunStatsShape.properties, group_count: Type.Integer() }) },
  },
  handler: async ({ caller, body, services }) => {
    const scope = await readGroupScope(services, caller.workspaceId, body);
    const { stats, threads } = await readThreadsStats(services.clickhouse, scope, selectStats(undefined));
    return { ...stats, group_count: threads };
  },
});

const getThreadPreview = defineOperation({
  operationId: 'getThreadPreview',
  method: 'GET',
  path: '/runs/threads/:thread_id',
  summary: 'Get previews of a thread',
  description:
    'The conversation of a thread as text, at most 10,000 characters: all messages, the last message of the human and the last answer ' +
    'of each turn, or the first message of the human and the last answer. Messages are those in the inputs and outputs of root runs.',
  access,
  unsupported: { query: ['variables'] },
  errors: ['NOT_FOUND', ...clickhouseErrors],
  schema: {
    params: Type.Object({ thread_id: Type.String({ minLength: 1, maxLength: 10_000 }) }),
    query: Type.Object({
      session_id: Uuid({ description: 'The project.' }),
      select: Type.Optional(Type.Array(OneOf(previewForms), { maxItems: 10, description: 'Default: all.' })),
    }),
    response: {
      200: Type.Object({ thread_id: Type.String(), previews: Dictionary(Type.String()) }),
    },
  },
  handler: async ({ caller, params, query, services, request }) => {
    const tenantId = caller.workspaceId;
    const [projectId = ''] = await requireProjects(services.database, tenantId, [query.session_id.toLowerCase()]);
    const deps = addRunExtras(services, request);
    const thread = { tenantId, projectId, threadId: params.thread_id };
    const previews = await readThreadPreviews(deps, thread, query.select ?? previewForms);
    if (previews === undefined) throw runlakeError('NOT_FOUND', { what: `Thread ${params.thread_id}` });
    return { thread_id: params.thread_id, previews };
  },
});

type ReadStat = (stats: RunStats) => unknown;

/**
 * Thread statistics by their name in `select`. Each entry has the field of the response and the run statistic from
 * which its value is read.
 */
const aggregates = {
  TRACE_COUNT: { trace_count: ({ run_count }) => run_count },
  TOTAL_TOKENS: { total_tokens: ({ total_tokens }) => total_tokens },
  TOTAL_COST: { total_cost: ({ total_cost }) => total_cost },
  ERROR_RATE: { error_rate: ({ error_rate }) => error_rate },
  STREAMING_RATE: { streaming_rate: ({ streaming_rate }) => streaming_rate },
  LATENCY_P50: { latency_p50_seconds: ({ latency_p50 }) => latency_p50 },
  LATENCY_P99: { latency_p99_seconds: ({ latency_p99 }) => latency_p99 },
  MEDIAN_TOKENS: { median_tokens: ({ median_tokens }) => median_tokens },
  FIRST_TOKEN_P50: { first_token_p50_seconds: ({ first_token_p50 }) => first_token_p50 },
  FIRST_TOKEN_P99: { first_token_p99_seconds: ({ first_token_p99 }) => first_token_p99 },
  PROMPT_TOKENS: { prompt_tokens: ({ prompt_tokens }) => prompt_tokens },
  COMPLETION_TOKENS: { completion_tokens: ({ completion_tokens }) => completion_tokens },
  PROMPT_COST: { prompt_cost: ({ prompt_cost }) => prompt_cost },
  COMPLETION_COST: { completion_cost: ({ completion_cost }) => completion_cost },
  PROMPT_TOKEN_DETAILS: { prompt_token_details: (stats) => convertEmptyToNull(stats.prompt_token_details) },
  COMPLETION_TOKEN_DETAILS: { completion_token_details: (stats) => convertEmptyToNull(stats.completion_token_details) },
  PROMPT_COST_DETAILS: { prompt_cost_details: (stats) => convertEmptyToNull(stats.prompt_cost_details) },
  COMPLETION_COST_DETAILS: { completion_cost_details: (stats) => convertEmptyToNull(stats.completion_cost_details) },
  THREAD_FEEDBACK_STATS: { thread_feedback_stats: (stats) => convertEmptyToNull(stats.feedback_stats) },
} as const satisfies Record<string, Readonly<Record<string, ReadStat>>>;

type AggregateName = keyof typeof aggregates;
const aggregateNames = Object.keys(aggregates) as AggregateName[];
const selectNames: (AggregateName | 'THREAD_COUNT')[] = [...aggregateNames, 'THREAD_COUNT'];
const statNamesBySelect: Readonly<Record<string, StatName>> = {
  TRACE_COUNT: 'run_count',
  THREAD_FEEDBACK_STATS: 'feedback_stats',
};

const NullableNumber = () => nullable(Type.Number());
const Count = () => nullable(Type.Integer());

const getThreadsStats = defineOperation({
  operationId: 'getThreadsStats',
  method: 'POST',
  path: '/v2/threads/stats',
  summary: 'Get the selected statistics of the threads of a project',
  description:
    'Over the root runs, within the times, of the threads that have a trace that matches all filters. Percentiles are exact.',
  access,
  errorStyle: 'problem',
  unsupported: { body: ['stride'] },
  errors,
  schema: {
    body: Type.Object({
      ...ThreadScopeFields.properties,
      select: Type.Array(OneOf(selectNames), { minItems: 1, maxItems: 100 }),
    }),
    response: {
      200: Type.Partial(
        Type.Object({
          thread_count: Type.Integer(),
          trace_count: Type.Integer(),
          total_tokens: Count(),
          total_cost: NullableNumber(),
          error_rate: NullableNumber(),
          streaming_rate: NullableNumber(),
          latency_p50_seconds: NullableNumber(),
          latency_p99_seconds: NullableNumber(),
          median_tokens: Count(),
          first_token_p50_seconds: NullableNumber(),
          first_token_p99_seconds: NullableNumber(),
          prompt_tokens: Count(),
          completion_tokens: Count(),
          prompt_cost: NullableNumber(),
          completion_cost: NullableNumber(),
          prompt_token_details: nullable(Sums()),
          completion_token_details: nullable(Sums()),
          prompt_cost_details: nullable(Sums()),
          completion_cost_details: nullable(Sums()),
          thread_feedback_stats: FeedbackStats(),
        }),
      ),
    },
  },
  handler: async ({ caller, body, services }) => {
    const scope = await readThreadScope(services.database, caller.workspaceId, body);
    const select: readonly string[] = body.select;
    const names = aggregateNames.filter((name) => select.includes(name));
    const selected = new Set(names.map((name) => statNamesBySelect[name] ?? (String(name).toLowerCase() as StatName)));
    if (names.length === 0) return { thread_count: await countThreads(services.clickhouse, scope) };
    const { stats, threads } = await readThreadsStats(services.clickhouse, scope, selected);
    const fields = names.flatMap((name) => Object.entries<ReadStat>(aggregates[name]));
    const read = Object.fromEntries(fields.map(([field, readStat]) => [field, readStat(stats)]));
    return select.includes('THREAD_COUNT') ? { ...read, thread_count: threads } : read;
  },
});

export const runGroupOperations = [groupRuns, getRunGroupStats];
export const threadGroupOperations = [getThreadsStats, getThreadPreview];
