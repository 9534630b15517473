import { Type } from 'typebox';
import { parseRunFilters } from '../../pipelines/runs/filter/run-filter.ts';
import type { RunFilterConditions } from '../../pipelines/runs/filter/sql-terms.ts';
import { requireProjects } from '../../pipelines/runs/locate-run.ts';
import { listRuns, queryRuns, v2Envelope, v2ListEnvelope } from '../../pipelines/runs/query-runs.ts';
import { selectTraceFields, selectV2Fields } from '../../pipelines/runs/run-select.ts';
import { jsonMediaType, nullable, optional, parseOptionalTime, Timestamp, Uuid } from '../server/formats.ts';
import { defineOperation, RawResponse } from '../server/operation.ts';
import { buildQueryResponse, pageMediaTypes } from './query-stream.ts';
import { addRunExtras } from './run-extras.ts';
import { normaliseIds } from './runs.ts';
import { buildPageFields, dayMicros, PageResponse, SelectList, V2Run, v2Errors } from './v2-runs.ts';

const maxPageSize = 1_000;
const defaultPageSize = 100;

const Trace = Type.Object({
  root_run: V2Run,
  trace_aggregates: Type.Optional(
    Type.Partial(
      Type.Object({
        total_tokens: Type.Integer(),
        total_cost: nullable(Type.Number()),
        first_token_time: nullable(Timestamp({ description: 'First token of any model call of the trace.' })),
      }),
    ),
  ),
});

const queryTraces = defineOperation({
  operationId: 'queryTraces',
  method: 'POST',
  path: '/v2/traces/query',
  summary: 'Query the traces of a project, page by page',
  description:
    'Newest first. `TOTAL_TOKENS`, `TOTAL_COST` and `FIRST_TOKEN_TIME` of `selects` are in `trace_aggregates`, all other fields in `root_run`.',
  access: { permission: 'runs:read', tenantScope: 'workspace' },
  errorStyle: 'problem',
  unsupported: { body: ['ai_search', 'sem_filter', 'min_feedback_modified_at', 'max_feedback_modified_at'] },
  errors: ['INVALID_FILTER', ...v2Errors],
  schema: {
    body: Type.Object({
      project_id: Uuid(),
      trace_ids: optional(Type.Array(Uuid(), { maxItems: 1_000, description: 'Only these traces.' })),
      min_start_time: optional(Timestamp({ description: 'Of the root run, inclusive. Default: a day ago.' })),
      max_start_time: optional(Timestamp({ description: 'Of the root run, exclusive. Default: no limit.' })),
      trace_filter: optional(Type.String({ description: 'Condition on the root run; see the guide.' })),
      tree_filter: optional(Type.String({ description: 'Condition that some run of the trace satisfies.' })),
      selects: optional(SelectList()),
      ...buildPageFields(maxPageSize, defaultPageSize),
    }),
    response: { 200: PageResponse(Trace) },
    ...pageMediaTypes,
  },
  handler: async ({ caller, body, services, request }) => {
    const tenantId = caller.workspaceId;
    const query = {
      tenantId,
      projectIds: await requireProjects(services.database, tenantId, [body.project_id.toLowerCase()]),
      filter: {
        isRoot: true,
        traceIds: normaliseIds(body.trace_ids),
        startedFromMicros: parseOptionalTime(body.min_start_time) ?? Date.now() * 1_000 - dayMicros,
        startedBeforeMicros: parseOptionalTime(body.max_start_time),
        conditions: applyToRoot(parseRunFilters(body)),
      },
      selected: selectTraceFields(body.selects ?? undefined),
      order: 'desc' as const,
      limitRows: body.page_size ?? defaultPageSize,
      cursor: body.cursor || undefined,
    };
    const deps = addRunExtras(services, request);
    return buildQueryResponse(request, await queryRuns(deps, query, v2Envelope));
  },
});

/**
 * Converts conditions on the root to conditions on the run itself: the query reads only root runs, so no subquery is
 * needed.
 */
function applyToRoot(conditions: RunFilterConditions | undefined): RunFilterConditions | undefined {
  return conditions && { run: [...conditions.run, ...conditions.trace], trace: [], tree: conditions.tree };
}

const listTraceRuns = defineOperation({
  operationId: 'listTraceRuns',
  method: 'GET',
  path: '/v2/traces/:trace_id/runs',
  summary: 'List the selected fields of all runs of a trace',
  description: 'Oldest first. 400 if the runs are too large for one response; select fewer fields then.',
  access: { permission: 'runs:read', tenantScope: 'workspace' },
  errorStyle: 'problem',
  errors: ['INVALID_FILTER', ...v2Errors],
  schema: {
    params: Type.Object({ trace_id: Uuid() }),
    query: Type.Object({
      project_id: Uuid(),
      min_start_time: Type.Optional(Timestamp({ description: 'Inclusive.' })),
      max_start_time: Type.Optional(Timestamp({ description: 'Inclusive.' })),
      filter: Type.Optional(Type.String({ description: 'Condition on the run; see the guide.' })),
      selects: Type.Optional(SelectList()),
    }),
    response: { 200: Type.Object({ items: Type.Array(V2Run) }) },
    produces: jsonMediaType,
  },
  handler: async ({ caller, params, query, services, request }) => {
    const tenantId = caller.workspaceId;
    const untilMicros = parseOptionalTime(query.max_start_time);
    const deps = addRunExtras(services, request);
    const runs = {
      tenantId,
      projectIds: await requireProjects(services.database, tenantId, [query.project_id.toLowerCase()]),
      filter: {
        traceId: params.trace_id.toLowerCase(),
        startedFromMicros: parseOptionalTime(query.min_start_time),
        startedBeforeMicros: untilMicros === undefined ? undefined : untilMicros + 1,
        conditions: parseRunFilters({ filter: query.filter ?? null }),
      },
      selected: selectV2Fields(query.selects),
      order: 'asc' as const,
    };
    return new RawResponse({ body: await listRuns(deps, runs, v2ListEnvelope) });
  },
});

export const v2TraceOperations = [queryTraces, listTraceRuns];
