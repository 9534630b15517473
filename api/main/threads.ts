import { Type } from 'typebox';
import { feedbackStatsOfGroups } from '../../pipelines/feedback/feedback-stats.ts';
import type { RunFilterConditions } from '../../pipelines/runs/filter/run-filter.ts';
import { parseRunFilters } from '../../pipelines/runs/filter/run-filter.ts';
import { requireProjects } from '../../pipelines/runs/locate-run.ts';
import { queryRuns, v2Envelope } from '../../pipelines/runs/query-runs.ts';
import { selectThreadTraceFields } from '../../pipelines/runs/run-select.ts';
import {
  latencyPercentile,
  queryThreads as readThreads,
  sumDetailsOfTurns,
  sumOfTurns,
  type Thread,
  type Turn,
} from '../../pipelines/runs/threads.ts';
import { threadTraceFields } from '../../pipelines/runs/v2-fields.ts';
import { JsonObject, nullable, optional, parseOptionalTime, Timestamp, Uuid } from '../server/formats.ts';
import { defineOperation, RawResponse } from '../server/operation.ts';
import { clickhouseErrors } from '../server/operation-errors.ts';
import type { Services } from '../server/services.ts';
import { createRunExtras } from './run-extras.ts';
import { dayMicros, PageOf, paging, Selects, storedJson, toUpperCase, V2Run, v2Errors } from './v2-runs.ts';

const maxPageSize = 100;
const defaultPageSize = 20;

const ThreadParams = Type.Object({ thread_id: Type.String({ minLength: 1, maxLength: 10_000 }) });
const Figure = () => nullable(Type.Number());
const Count = () => Type.Integer();
const FeedbackStats = () => nullable(Type.Record(Type.String(), JsonObject()));
const Sums = () => Type.Record(Type.String(), Type.Number());
const access = { permission: 'runs:read', tenantScope: 'workspace' } as const;

const ThreadSummary = Type.Object({
  thread_id: Type.String(),
  count: Type.Integer({ description: 'Number of traces.' }),
  first_trace_id: Uuid(),
  last_trace_id: Uuid(),
  trace_id: Uuid({ description: 'The same as `last_trace_id`.' }),
  first_inputs: nullable(Type.String({ description: 'Preview.' })),
  last_outputs: nullable(Type.String({ description: 'Preview.' })),
  last_error: nullable(Type.String({ description: 'Preview of the newest error.' })),
  min_start_time: Timestamp(),
  max_start_time: Timestamp(),
  start_time: Timestamp({ description: 'The same as `max_start_time`.' }),
  latency_p50: nullable(Type.Number({ description: 'Exact, in seconds, of the traces that have ended.' })),
  latency_p99: Figure(),
  total_tokens: Count(),
  total_cost: Figure(),
  total_token_details: Sums(),
  total_cost_details: Sums(),
  num_errored_turns: Count(),
  feedback_stats: FeedbackStats(),
});

export const queryThreads = defineOperation({
  operationId: 'queryThreads',
  method: 'POST',
  path: '/v2/threads/query',
  tag: 'threads',
  summary: 'Query the threads of a project, page by page',
  description:
    'A thread is the traces whose root runs have the same `thread_id`, `session_id` or `conversation_id` in their metadata. The thread ' +
    'with the newest trace is first. Only traces that match the times and filters count.',
  access,
  errorStyle: 'problem',
  unsupported: { body: ['thread_filter'] },
  errors: ['INVALID_FILTER', 'NOT_FOUND', ...clickhouseErrors],
  schema: {
    body: Type.Object({
      project_id: Uuid(),
      min_start_time: optional(Timestamp({ description: 'Inclusive. Default: a day ago.' })),
      max_start_time: optional(Timestamp({ description: 'Exclusive. Default: no limit.' })),
      filter: optional(Type.String({ description: 'Condition on the root run of a trace; see the guide.' })),
      trace_filter: optional(Type.String({ description: 'Another condition on the root run.' })),
      tree_filter: optional(Type.String({ description: 'Condition that some run of the trace satisfies.' })),
      ...paging(maxPageSize, defaultPageSize),
    }),
    response: { 200: PageOf(ThreadSummary) },
  },
  handler: async ({ caller, body, services, request }) => {
    const tenantId = caller.workspaceId;
    const [projectId = ''] = await requireProjects(services.database, tenantId, [body.project_id.toLowerCase()]);
    const deps = { ...services, extras: createRunExtras(services, request) };
    const { threads, next } = await readThreads(deps, {
      tenantId,
      projectId,
      filter: {
        startedFromMicros: parseOptionalTime(body.min_start_time) ?? Date.now() * 1_000 - dayMicros,
        startedBeforeMicros: parseOptionalTime(body.max_start_time),
        conditions: parseRunFilters(body),
      },
      limitRows: body.page_size ?? defaultPageSize,
      cursor: body.cursor || undefined,
    });
    const feedback = await readFeedback(services, tenantId, threads);
    return {
      items: threads.map((thread, index) => summarise(thread, feedback[index] ?? null)),
      next_cursor: next,
      has_more: next !== null,
    };
  },
});

/** Feedback statistics of each thread; null for a thread without feedback. */
async function readFeedback({ clickhouse }: Services, tenantId: string, threads: readonly Thread[]) {
  const groups = new Map(
    threads.flatMap(({ rootRunIds }, index) => rootRunIds.map((id) => [id, String(index)] as const)),
  );
  const stats = await feedbackStatsOfGroups(clickhouse, tenantId, groups);
  return threads.map((_thread, index) => {
    const json = stats.get(String(index));
    return json === undefined ? null : (JSON.parse(json) as Record<string, Record<string, unknown>>);
  });
}

function summarise({ threadId, turns }: Thread, feedback_stats: Record<string, Record<string, unknown>> | null) {
  const [first, last] = [turns[0] as Turn, turns.at(-1) as Turn];
  return {
    thread_id: threadId,
    count: turns.length,
    first_trace_id: first.trace_id,
    last_trace_id: last.trace_id,
    trace_id: last.trace_id,
    first_inputs: first.inputs_preview,
    last_outputs: last.outputs_preview,
    last_error: turns.findLast(({ status }) => status === 'ERROR')?.error_preview ?? null,
    min_start_time: first.start_time,
    max_start_time: last.start_time,
    start_time: last.start_time,
    latency_p50: latencyPercentile(turns, 0.5),
    latency_p99: latencyPercentile(turns, 0.99),
    total_tokens: sumOfTurns(turns, (turn) => turn.total_tokens) ?? 0,
    total_cost: sumOfTurns(turns, (turn) => turn.total_cost),
    total_token_details: sumDetailsOfTurns(turns, (turn) => [turn.prompt_token_details, turn.completion_token_details]),
    total_cost_details: sumDetailsOfTurns(turns, (turn) => [turn.prompt_cost_details, turn.completion_cost_details]),
    num_errored_turns: turns.filter(({ status }) => status === 'ERROR').length,
    feedback_stats,
  };
}

const TraceOfThread = Type.Partial(
  Type.Object({
    ...Type.Pick(V2Run, [
      ...(Object.keys(threadTraceFields) as (keyof typeof threadTraceFields)[]).filter((name) => name !== 'latency'),
    ]).properties,
    latency: Figure(),
  }),
);

export const listThreadTraces = defineOperation({
  operationId: 'listThreadTraces',
  method: 'GET',
  path: '/v2/threads/:thread_id/traces',
  tag: 'threads',
  summary: 'List the traces of a thread, page by page',
  description: 'Newest first, with the selected fields of the root run. `trace_id` is always in the response.',
  access,
  errorStyle: 'problem',
  errors: ['INVALID_FILTER', ...v2Errors],
  schema: {
    params: ThreadParams,
    query: Type.Object({
      project_id: Uuid(),
      filter: Type.Optional(Type.String({ description: 'Condition on the root run; see the guide.' })),
      selects: Type.Optional(Selects([...toUpperCase(Object.keys(threadTraceFields)), 'OP'])),
      page_size: Type.Optional(Type.Integer({ minimum: 1, maximum: maxPageSize, default: defaultPageSize })),
      cursor: Type.Optional(Type.String({ description: '`next_cursor` of the previous page.' })),
    }),
    response: { 200: PageOf(TraceOfThread) },
    produces: storedJson,
  },
  handler: async ({ caller, params, query, services, request }) => {
    const tenantId = caller.workspaceId;
    const projectIds = await requireProjects(services.database, tenantId, [query.project_id.toLowerCase()]);
    const deps = { ...services, extras: createRunExtras(services, request) };
    const page = {
      tenantId,
      projectIds,
      filter: {
        isRoot: true,
        conditions: addThread(params.thread_id, parseRunFilters({ filter: query.filter ?? null })),
      },
      selected: selectThreadTraceFields(query.selects),
      order: 'desc' as const,
      limitRows: query.page_size ?? defaultPageSize,
      cursor: query.cursor || undefined,
    };
    return new RawResponse({ body: await queryRuns(deps, page, v2Envelope) });
  },
});

/** Adds the condition that the run is in the thread. */
function addThread(threadId: string, conditions: RunFilterConditions | undefined): RunFilterConditions {
  const inThread = { kind: 'compare', operator: 'eq', field: 'thread_id', value: threadId } as const;
  return { trace: [], tree: [], ...conditions, run: [inThread, ...(conditions?.run ?? [])] };
}

const detailsOf = (turns: readonly Turn[], read: (turn: Turn) => Turn['prompt_cost_details']) => {
  const raw = sumDetailsOfTurns(turns, (turn) => [read(turn)]);
  return Object.keys(raw).length > 0 ? { raw } : null;
};

/** Aggregates of a thread: the name in `selects`, and the field of the response. */
const threadStats = {
  TURNS: { turns: (turns: readonly Turn[]) => turns.length },
  FIRST_START_TIME: { first_start_time: (turns: readonly Turn[]) => turns[0]?.start_time ?? null },
  LAST_START_TIME: { last_start_time: (turns: readonly Turn[]) => turns.at(-1)?.start_time ?? null },
  LAST_END_TIME: {
    last_end_time: (turns: readonly Turn[]) =>
      turns.reduce<string | null>((last, { end_time: end }) => (end !== null && end > (last ?? '') ? end : last), null),
  },
  LATENCY_P50: { latency_p50_seconds: (turns: readonly Turn[]) => latencyPercentile(turns, 0.5) },
  LATENCY_P99: { latency_p99_seconds: (turns: readonly Turn[]) => latencyPercentile(turns, 0.99) },
  PROMPT_TOKENS: { prompt_tokens: (turns: readonly Turn[]) => sumOfTurns(turns, (turn) => turn.prompt_tokens) ?? 0 },
  COMPLETION_TOKENS: {
    completion_tokens: (turns: readonly Turn[]) => sumOfTurns(turns, (turn) => turn.completion_tokens) ?? 0,
  },
  TOTAL_TOKENS: { total_tokens: (turns: readonly Turn[]) => sumOfTurns(turns, (turn) => turn.total_tokens) ?? 0 },
  PROMPT_COST: { prompt_cost: (turns: readonly Turn[]) => sumOfTurns(turns, (turn) => turn.prompt_cost) },
  COMPLETION_COST: { completion_cost: (turns: readonly Turn[]) => sumOfTurns(turns, (turn) => turn.completion_cost) },
  TOTAL_COST: { total_cost: (turns: readonly Turn[]) => sumOfTurns(turns, (turn) => turn.total_cost) },
  PROMPT_TOKEN_DETAILS: {
    prompt_token_details: (turns: readonly Turn[]) => detailsOf(turns, (turn) => turn.prompt_token_details),
  },
  COMPLETION_TOKEN_DETAILS: {
    completion_token_details: (turns: readonly Turn[]) => detailsOf(turns, (turn) => turn.completion_token_details),
  },
  PROMPT_COST_DETAILS: {
    prompt_cost_details: (turns: readonly Turn[]) => detailsOf(turns, (turn) => turn.prompt_cost_details),
  },
  COMPLETION_COST_DETAILS: {
    completion_cost_details: (turns: readonly Turn[]) => detailsOf(turns, (turn) => turn.completion_cost_details),
  },
} as const;

const statNames = [...(Object.keys(threadStats) as (keyof typeof threadStats)[]), 'FEEDBACK_STATS'] as const;
const Time = () => nullable(Timestamp());
const Details = () => nullable(Type.Object({ raw: Sums() }));

export const getThreadStats = defineOperation({
  operationId: 'getThreadStats',
  method: 'GET',
  path: '/v2/threads/:thread_id/stats',
  tag: 'threads',
  summary: 'Get the selected statistics of a thread',
  description: 'Over all traces of the thread that match the filter. Percentiles are exact.',
  access,
  errorStyle: 'problem',
  errors: ['INVALID_FILTER', 'NOT_FOUND', ...clickhouseErrors],
  schema: {
    params: ThreadParams,
    query: Type.Object({
      session_id: Uuid({ description: 'The project.' }),
      selects: Type.Array(Type.Union(statNames.map((name) => Type.Literal(name))), { minItems: 1, maxItems: 100 }),
      filter: Type.Optional(Type.String({ description: 'Condition on the root run; see the guide.' })),
    }),
    response: {
      200: Type.Partial(
        Type.Object({
          turns: Count(),
          first_start_time: Time(),
          last_start_time: Time(),
          last_end_time: Time(),
          latency_p50_seconds: Figure(),
          latency_p99_seconds: Figure(),
          prompt_tokens: Count(),
          completion_tokens: Count(),
          total_tokens: Count(),
          prompt_cost: Figure(),
          completion_cost: Figure(),
          total_cost: Figure(),
          prompt_token_details: Details(),
          completion_token_details: Details(),
          prompt_cost_details: Details(),
          completion_cost_details: Details(),
          feedback_stats: FeedbackStats(),
        }),
      ),
    },
  },
  handler: async ({ caller, params, query, services, request }) => {
    const tenantId = caller.workspaceId;
    const [projectId = ''] = await requireProjects(services.database, tenantId, [query.session_id.toLowerCase()]);
    const deps = { ...services, extras: createRunExtras(services, request) };
    const conditions = addThread(params.thread_id, parseRunFilters({ filter: query.filter ?? null }));
    const { threads } = await readThreads(deps, {
      tenantId,
      projectId,
      threadId: params.thread_id,
      filter: { conditions },
      limitRows: 1,
    });
    const turns = threads[0]?.turns ?? [];
    const selects: ReadonlySet<string> = new Set(query.selects);
    const selected = statNames.flatMap((name) =>
      name !== 'FEEDBACK_STATS' && selects.has(name) ? Object.entries(threadStats[name]) : [],
    );
    const stats = Object.fromEntries(selected.map(([field, compute]) => [field, compute(turns)]));
    if (!selects.has('FEEDBACK_STATS')) return stats;
    return { ...stats, feedback_stats: (await readFeedback(services, tenantId, threads))[0] ?? null };
  },
});
