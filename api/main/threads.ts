import { type Static, Type } from 'typebox';
import { Dictionary } from '../../infra/json/dictionary.ts';
import type { Database } from '../../infra/postgres/database.ts';
import { formatTime } from '../../pipelines/ingest/run-event/times.ts';
import { parseRunFilters } from '../../pipelines/runs/filter/run-filter.ts';
import { parseThreadFilter } from '../../pipelines/runs/filter/thread-filter.ts';
import { requireProjects } from '../../pipelines/runs/locate-run.ts';
import { queryRuns, v2Envelope } from '../../pipelines/runs/query-runs.ts';
import { selectThreadTraceFields } from '../../pipelines/runs/run-select.ts';
import type { RunStats, StatName } from '../../pipelines/runs/stats/stat-names.ts';
import {
  addThreadCondition,
  readThreadStats,
  queryThreads as readThreads,
  type Thread,
} from '../../pipelines/runs/threads.ts';
import { threadTraceFields } from '../../pipelines/runs/v2-fields.ts';
import {
  JsonObject,
  jsonMediaType,
  nullable,
  OneOf,
  optional,
  parseOptionalTime,
  Timestamp,
  Uuid,
} from '../server/formats.ts';
import { cursorParameter } from '../server/list-parameters.ts';
import { defineOperation, RawResponse } from '../server/operation.ts';
import { clickhouseErrors } from '../server/operation-errors.ts';
import { buildQueryResponse, pageMediaTypes } from './query-stream.ts';
import { addRunExtras } from './run-extras.ts';
import { buildPageFields, dayMicros, PageResponse, SelectList, uppercaseNames, V2Run, v2Errors } from './v2-runs.ts';

const maxPageSize = 100;
const defaultPageSize = 20;

/** Project, time range and filters of a request that reads threads. */
export const ThreadScopeFields = Type.Object({
  project_id: Uuid(),
  min_start_time: optional(Timestamp({ description: 'Inclusive. Default: a day ago.' })),
  max_start_time: optional(Timestamp({ description: 'Exclusive. Default: no limit.' })),
  filter: optional(Type.String({ description: 'Condition on the root run of a trace; see the guide.' })),
  trace_filter: optional(Type.String({ description: 'Another condition on the root run.' })),
  tree_filter: optional(Type.String({ description: 'Condition that some run of the trace satisfies.' })),
  thread_filter: optional(
    Type.String({
      description: 'Condition on the summary of a thread, over its traces within the times; see the guide.',
    }),
  ),
});

const ThreadParams = Type.Object({ thread_id: Type.String({ minLength: 1, maxLength: 10_000 }) });
const Figure = () => nullable(Type.Number());
const Count = () => Type.Integer();
export const FeedbackStats = () => nullable(Dictionary(JsonObject()));
export const Sums = () => Dictionary(Type.Number());
const access = { permission: 'runs:read', tenantScope: 'workspace' } as const;

export const ThreadSummary = Type.Object({
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

const queryThreads = defineOperation({
  operationId: 'queryThreads',
  method: 'POST',
  path: '/v2/threads/query',
  summary: 'Query the threads of a project, page by page',
  description:
    'A thread is the traces whose root runs have the same `thread_id`, `session_id` or `conversation_id` in their metadata. The thread ' +
    'with the newest trace is first. The filters select threads with a trace, within the times, that matches all of them; all traces of ' +
    'these threads within the times count.',
  access,
  errorStyle: 'problem',
  unsupported: { body: ['ai_search', 'sem_filter'] },
  errors: ['INVALID_FILTER', 'NOT_FOUND', ...clickhouseErrors],
  schema: {
    body: Type.Object({
      ...ThreadScopeFields.properties,
      ...buildPageFields(maxPageSize, defaultPageSize),
    }),
    response: { 200: PageResponse(ThreadSummary) },
    ...pageMediaTypes,
  },
  handler: async ({ caller, body, services, request }) => {
    const { threads, next } = await readThreads(services.clickhouse, {
      ...(await readThreadScope(services.database, caller.workspaceId, body)),
      limitRows: body.page_size ?? defaultPageSize,
      cursor: body.cursor || undefined,
    });
    const page = { items: threads.map(formatThreadSummary), next_cursor: next, has_more: next !== null };
    return buildQueryResponse(request, Buffer.from(JSON.stringify(page)));
  },
});

type ScopeBody = Static<typeof ThreadScopeFields>;

export async function readThreadScope(database: Database, tenantId: string, body: ScopeBody) {
  const [projectId = ''] = await requireProjects(database, tenantId, [body.project_id.toLowerCase()]);
  const conditions = parseRunFilters(body);
  const filter = {
    startedFromMicros: parseOptionalTime(body.min_start_time) ?? Date.now() * 1_000 - dayMicros,
    startedBeforeMicros: parseOptionalTime(body.max_start_time),
    conditions,
    selectsThreads: conditions !== undefined,
  };
  const threadCondition = body.thread_filter ? parseThreadFilter('thread_filter', body.thread_filter) : undefined;
  return { tenantId, projectId, filter, threadCondition };
}

const formatUtcTime = (micros: number) => `${formatTime(micros)}Z`;

export function formatThreadSummary(thread: Thread): Static<typeof ThreadSummary> {
  const { stats } = thread;
  return {
    thread_id: thread.threadId,
    count: stats.run_count ?? 0,
    first_trace_id: thread.first_trace,
    last_trace_id: thread.last_trace,
    trace_id: thread.last_trace,
    first_inputs: thread.first_inputs,
    last_outputs: thread.last_outputs,
    last_error: thread.last_error,
    min_start_time: formatUtcTime(thread.first_start),
    max_start_time: formatUtcTime(thread.last_start),
    start_time: formatUtcTime(thread.last_start),
    latency_p50: stats.latency_p50 ?? null,
    latency_p99: stats.latency_p99 ?? null,
    total_tokens: stats.total_tokens ?? 0,
    total_cost: stats.total_cost ?? null,
    total_token_details: addSums(stats.prompt_token_details, stats.completion_token_details),
    total_cost_details: addSums(stats.prompt_cost_details, stats.completion_cost_details),
    num_errored_turns: thread.errors,
    feedback_stats: convertEmptyToNull(stats.feedback_stats),
  };
}

function addSums(one: Record<string, number> = {}, other: Record<string, number> = {}): Record<string, number> {
  // Clients choose the keys, also those of `Object.prototype`.
  const sums = new Map(Object.entries(one));
  for (const [key, value] of Object.entries(other)) sums.set(key, (sums.get(key) ?? 0) + value);
  return Object.fromEntries(sums);
}

export function convertEmptyToNull<T extends object>(value: T | undefined): T | null {
  return value !== undefined && Object.keys(value).length > 0 ? value : null;
}

/** Fields of a trace in a thread that are also fields of a run. */
const traceFieldNames = (Object.keys(threadTraceFields) as (keyof typeof threadTraceFields)[]).filter(
  (name) => name !== 'latency' && name !== 'turn_number',
);

const ThreadTrace = Type.Partial(
  Type.Object({
    ...Type.Pick(V2Run, [...traceFieldNames]).properties,
    latency: Figure(),
    turn_number: nullable(
      Type.Integer({ description: 'Position in the whole thread, from 1, the oldest first; filters have no effect.' }),
    ),
  }),
);

const listThreadTraces = defineOperation({
  operationId: 'listThreadTraces',
  method: 'GET',
  path: '/v2/threads/:thread_id/traces',
  summary: 'List the traces of a thread, page by page',
  description: 'Oldest first, with the selected fields of the root run. `trace_id` is always in the response.',
  access,
  errorStyle: 'problem',
  errors: ['INVALID_FILTER', ...v2Errors],
  schema: {
    params: ThreadParams,
    query: Type.Object({
      project_id: Uuid(),
      filter: Type.Optional(Type.String({ description: 'Condition on the root run; see the guide.' })),
      trace_filter: Type.Optional(Type.String({ description: 'Another condition on the root run.' })),
      tree_filter: Type.Optional(Type.String({ description: 'Condition that some run of the trace satisfies.' })),
      selects: Type.Optional(SelectList([...uppercaseNames(Object.keys(threadTraceFields)), 'OP'])),
      page_size: Type.Optional(Type.Integer({ minimum: 1, maximum: maxPageSize, default: defaultPageSize })),
      cursor: cursorParameter,
    }),
    response: { 200: PageResponse(ThreadTrace) },
    produces: jsonMediaType,
  },
  handler: async ({ caller, params, query, services, request }) => {
    const tenantId = caller.workspaceId;
    const projectIds = await requireProjects(services.database, tenantId, [query.project_id.toLowerCase()]);
    const deps = addRunExtras(services, request);
    const page = {
      tenantId,
      projectIds,
      filter: {
        isRoot: true,
        conditions: addThreadCondition([params.thread_id], parseRunFilters(query)),
      },
      selected: selectThreadTraceFields(query.selects),
      order: 'asc' as const,
      limitRows: query.page_size ?? defaultPageSize,
      cursor: query.cursor || undefined,
    };
    return new RawResponse({ body: await queryRuns(deps, page, v2Envelope) });
  },
});

type ThreadEdges = Awaited<ReturnType<typeof readThreadStats>>['edges'];

const formatUtcTimeOrNull = (micros: number | null | undefined) => (micros == null ? null : formatUtcTime(micros));
const wrapRawSums = (sums: Record<string, number> | undefined) => {
  const raw = convertEmptyToNull(sums);
  return raw && { raw };
};

type ReadStat = (stats: RunStats, edges: ThreadEdges) => unknown;

/**
 * Thread statistics by their name in `selects`. Each entry has the field of the response and a function that returns
 * the value.
 */
const threadStats = {
  TURNS: { turns: ({ run_count }: RunStats) => run_count },
  FIRST_START_TIME: { first_start_time: (_: RunStats, edges: ThreadEdges) => formatUtcTimeOrNull(edges?.first_start) },
  LAST_START_TIME: { last_start_time: (_: RunStats, edges: ThreadEdges) => formatUtcTimeOrNull(edges?.last_start) },
  LAST_END_TIME: { last_end_time: (_: RunStats, edges: ThreadEdges) => formatUtcTimeOrNull(edges?.last_end) },
  LATENCY_P50: { latency_p50_seconds: ({ latency_p50 }: RunStats) => latency_p50 },
  LATENCY_P99: { latency_p99_seconds: ({ latency_p99 }: RunStats) => latency_p99 },
  PROMPT_TOKENS: { prompt_tokens: ({ prompt_tokens }: RunStats) => prompt_tokens },
  COMPLETION_TOKENS: { completion_tokens: ({ completion_tokens }: RunStats) => completion_tokens },
  TOTAL_TOKENS: { total_tokens: ({ total_tokens }: RunStats) => total_tokens },
  PROMPT_COST: { prompt_cost: ({ prompt_cost }: RunStats) => prompt_cost },
  COMPLETION_COST: { completion_cost: ({ completion_cost }: RunStats) => completion_cost },
  TOTAL_COST: { total_cost: ({ total_cost }: RunStats) => total_cost },
  PROMPT_TOKEN_DETAILS: { prompt_token_details: (stats: RunStats) => wrapRawSums(stats.prompt_token_details) },
  COMPLETION_TOKEN_DETAILS: {
    completion_token_details: (stats: RunStats) => wrapRawSums(stats.completion_token_details),
  },
  PROMPT_COST_DETAILS: { prompt_cost_details: (stats: RunStats) => wrapRawSums(stats.prompt_cost_details) },
  COMPLETION_COST_DETAILS: { completion_cost_details: (stats: RunStats) => wrapRawSums(stats.completion_cost_details) },
  FEEDBACK_STATS: { feedback_stats: (stats: RunStats) => convertEmptyToNull(stats.feedback_stats) },
} as const satisfies Record<string, Readonly<Record<string, ReadStat>>>;

const threadStatNames = Object.keys(threadStats) as (keyof typeof threadStats)[];

/** Returns the run statistics that are required for `selects`. */
function selectThreadStats(selects: readonly string[]): ReadonlySet<StatName> {
  const names = selects.map((name) => (name === 'TURNS' ? 'run_count' : name.toLowerCase()));
  return new Set(names as StatName[]);
}

const Time = () => nullable(Timestamp());
const SumDetails = () => nullable(Type.Object({ raw: Sums() }));

const getThreadStats = defineOperation({
  operationId: 'getThreadStats',
  method: 'GET',
  path: '/v2/threads/:thread_id/stats',
  summary: 'Get the selected statistics of a thread',
  description: 'Over all traces of the thread that match the filter. Percentiles are exact.',
  access,
  errorStyle: 'problem',
  errors: ['INVALID_FILTER', 'NOT_FOUND', ...clickhouseErrors],
  schema: {
    params: ThreadParams,
    query: Type.Object({
      session_id: Uuid({ description: 'The project.' }),
      selects: Type.Array(OneOf(threadStatNames), {
        minItems: 1,
        maxItems: 100,
      }),
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
          prompt_token_details: SumDetails(),
          completion_token_details: SumDetails(),
          prompt_cost_details: SumDetails(),
          completion_cost_details: SumDetails(),
          feedback_stats: FeedbackStats(),
        }),
      ),
    },
  },
  handler: async ({ caller, params, query, services }) => {
    const tenantId = caller.workspaceId;
    const [projectId = ''] = await requireProjects(services.database, tenantId, [query.session_id.toLowerCase()]);
    const filter = { conditions: parseRunFilters({ filter: query.filter ?? null }) };
    const { stats, edges } = await readThreadStats(
      services.clickhouse,
      { tenantId, projectId, threadId: params.thread_id, filter },
      selectThreadStats(query.selects),
    );
    const selected = query.selects.flatMap((name) => Object.entries<ReadStat>(threadStats[name]));
    return Object.fromEntries(selected.map(([field, read]) => [field, read(stats, edges)]));
  },
});

export const threadOperations = [queryThreads, listThreadTraces, getThreadStats];
