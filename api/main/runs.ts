import { type Static, type TObject, type TSchema, Type } from 'typebox';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { Dictionary } from '../../infra/json/dictionary.ts';
import { runTypes } from '../../pipelines/ingest/run-event/run-event.ts';
import { checkRunFilters, parseRunFilters } from '../../pipelines/runs/filter/run-filter.ts';
import { getRun as readRun } from '../../pipelines/runs/locate-run.ts';
import { type RunQuery, queryRuns as readRuns, v1Envelope } from '../../pipelines/runs/query-runs.ts';
import type { RunFilter } from '../../pipelines/runs/run-scope.ts';
import { publicFields, selectAll, selectFields, selectNames } from '../../pipelines/runs/run-select.ts';
import {
  JsonObject,
  jsonMediaType,
  nullable,
  OneOf,
  optional,
  parseOptionalTime,
  RawJson,
  Timestamp,
  Uuid,
} from '../server/formats.ts';
import { defineOperation, RawResponse } from '../server/operation.ts';
import { clickhouseErrors } from '../server/operation-errors.ts';
import { createErrorFinder } from '../server/schema-check.ts';
import { addRunExtras } from './run-extras.ts';

const RunType = OneOf(runTypes);

/** A time in a response. It has no `format: 'date-time'`, because that format requires a time zone. */
export const Time = () =>
  Type.String({ description: 'UTC with microseconds and without zone, such as `2026-01-02T03:04:05.123456`.' });
const Counts = () => Dictionary(Type.Integer());
const Costs = () => Dictionary(Type.String());
const Cost = () => Type.String({ description: 'Decimal as text, with the precision that was sent.' });
const Ids = () => Type.Array(Uuid());

/** A run in a response. If the request has `select`, the run has only the required and the selected fields. */
export const Run = Type.Object({
  id: Uuid(),
  name: Type.String({ description: 'Empty until the post of the run arrives.' }),
  run_type: RunType,
  start_time: Time(),
  end_time: optional(Time()),
  status: Type.String({
    description: '`error` if the run has an error, otherwise `success` if it has ended, otherwise `pending`.',
  }),
  error: optional(Type.String()),
  extra: Type.Optional(RawJson()),
  events: Type.Optional(RawJson('The JSON that was sent, byte for byte; usually a list of objects.')),
  inputs: Type.Optional(RawJson('The JSON that was sent, byte for byte; usually an object. `{}` if none was sent.')),
  inputs_preview: optional(Type.String()),
  inputs_s3_urls: optional(JsonObject()),
  outputs: Type.Optional(RawJson()),
  outputs_preview: optional(Type.String()),
  outputs_s3_urls: optional(JsonObject()),
  serialized: Type.Optional(RawJson()),
  tags: optional(Type.Array(Type.String())),
  trace_id: Uuid(),
  dotted_order: Type.String(),
  parent_run_id: optional(Uuid()),
  parent_run_ids: optional(Ids()),
  child_run_ids: optional(Ids()),
  direct_child_run_ids: optional(Ids()),
  execution_order: Type.Optional(Type.Integer()),
  session_id: Uuid(),
  reference_example_id: optional(Uuid()),
  reference_dataset_id: optional(Uuid()),
  manifest_id: optional(Uuid()),
  manifest_s3_id: optional(Uuid()),
  total_tokens: Type.Optional(Type.Integer()),
  prompt_tokens: Type.Optional(Type.Integer()),
  completion_tokens: Type.Optional(Type.Integer()),
  prompt_token_details: optional(Counts()),
  completion_token_details: optional(Counts()),
  total_cost: optional(Cost()),
  prompt_cost: optional(Cost()),
  completion_cost: optional(Cost()),
  prompt_cost_details: optional(Costs()),
  completion_cost_details: optional(Costs()),
  price_model_id: optional(Uuid()),
  first_token_time: optional(Time()),
  feedback_stats: optional(Dictionary(JsonObject())),
  s3_urls: optional(JsonObject({ description: 'Attachments: `attachment.<name>` to its `presigned_url`.' })),
  app_path: Type.String(),
  thread_id: optional(Type.String({ description: '`thread_id`, `session_id` or `conversation_id` of the metadata.' })),
  in_dataset: optional(Type.Boolean()),
  last_queued_at: optional(Time()),
  share_token: optional(Uuid()),
  trace_tier: optional(Type.String()),
  ttl_seconds: optional(Type.Integer()),
  trace_upgrade: Type.Optional(Type.Boolean()),
  messages: optional(Type.Array(JsonObject())),
  inserted_at: optional(Time()),
  trace_first_received_at: optional(Time()),
  trace_min_start_time: optional(Time()),
  trace_max_start_time: optional(Time()),
});

/** A run of a shared trace. */
export const PublicRun: TObject = Type.Pick(Run as TObject, [...publicFields]);

const getRun = defineOperation({
  operationId: 'getRun',
  method: 'GET',
  path: '/runs/:run_id',
  summary: 'Get a run with all fields',
  access: { permission: 'runs:read', tenantScope: 'workspace' },
  unsupported: { query: ['include_messages'], flags: ['include_messages'] },
  errors: ['NOT_FOUND', ...clickhouseErrors],
  schema: {
    params: Type.Object({ run_id: Uuid() }),
    query: Type.Object({
      session_id: Type.Optional(Uuid({ description: '404 if the run is not in this project.' })),
      start_time: Type.Optional(Timestamp({ description: 'Accepted; Runlake needs only the id of the run.' })),
      exclude_s3_stored_attributes: Type.Boolean({
        default: false,
        description: 'Accepted; all fields are stored with the run.',
      }),
      exclude_serialized: Type.Boolean({ default: false, description: 'Omit `serialized`.' }),
    }),
    response: { 200: Run },
    // The response contains stored JSON, which must not be serialised again.
    produces: jsonMediaType,
  },
  handler: async ({ caller, params, query, services, request }) => {
    const deps = addRunExtras(services, request);
    const body = await readRun(deps, {
      tenantId: caller.workspaceId,
      runId: params.run_id.toLowerCase(),
      projectId: query.session_id?.toLowerCase(),
      selected: selectAll(query.exclude_serialized ? ['serialized'] : []),
    });
    return new RawResponse({ body });
  },
});

/**
 * Maximum number of rows in a page. A larger limit in a request is reduced to this value, and clients continue with the
 * cursor. Other servers respond to a larger limit with an error.
 */
export const maxPageRows = 100;
const maxIds = 10_000;

/** Accepts a list or a single value, because clients send a single id without a list. An empty list matches no runs. */
export const oneOrMore = <T extends TSchema>(schema: T, maxItems: number, description: string) =>
  Type.Optional(Type.Union([Type.Array(schema, { maxItems }), schema, Type.Null()], { description }));
const describeAccepted = (description: string) => ({ description: `Accepted; ${description}` });

const maxQueryCharacters = 1_000;
const FilterExpression = (description: string) => optional(Type.String({ description }));

/** Fields that select runs. Run queries and statistics requests have these fields. */
export const runSetFields = {
  id: oneOrMore(Uuid(), maxIds, 'Return these runs and ignore all other conditions.'),
  trace: optional(Uuid()),
  parent_run: optional(Uuid()),
  run_type: optional(RunType),
  session: oneOrMore(Uuid(), maxIds, 'Projects. Default: all projects of the workspace.'),
  reference_example: oneOrMore(Uuid(), 1_000, 'Runs of these examples.'),
  execution_order: optional(Type.Literal(1, { description: '1 is the same as `is_root: true`.' })),
  start_time: optional(Timestamp({ description: 'Runs that started at or after this time.' })),
  end_time: optional(
    Timestamp({ description: 'Runs that ended at or before this time. Excludes runs without an end.' }),
  ),
  error: optional(Type.Boolean()),
  filter: FilterExpression('Condition on the run, such as `eq(run_type, "llm")`; see the guide.'),
  trace_filter: FilterExpression('Condition on the root run of its trace.'),
  tree_filter: FilterExpression('Condition that some run of its trace satisfies.'),
  search_filter: FilterExpression('Another condition on the run.'),
  query: optional(Type.String({ maxLength: maxQueryCharacters, description: 'Text to search; as `search("…")`.' })),
  is_root: optional(Type.Union([Type.Boolean(), Type.Literal(0), Type.Literal(1)])),
  data_source_type: optional(Type.String(describeAccepted('all runs are in one store.'))),
  use_experimental_search: optional(Type.Boolean(describeAccepted('there is one search.'))),
};

const RunSet = Type.Object(runSetFields);

const Query = Type.Object({
  ...runSetFields,
  cursor: optional(Type.String({ description: '`cursors.next` of the previous page.' })),
  limit: optional(
    Type.Integer({ minimum: 1, default: maxPageRows, description: `Larger values are reduced to ${maxPageRows}.` }),
  ),
  select: optional(Type.Array(OneOf(selectNames), { maxItems: 200 })),
  order: optional(
    OneOf(['asc', 'desc'], {
      default: 'desc',
      description: 'By the start time in dotted_order.',
    }),
  ),
  skip_pagination: optional(Type.Boolean({ description: 'If true, the response has no cursor.' })),
  skip_prev_cursor: optional(Type.Boolean(describeAccepted('responses have no cursor of the previous page.'))),
});

/** A page of runs in the form of version 1. */
export const RunPage = (run: TObject) =>
  Type.Object({
    runs: Type.Array(run),
    cursors: Type.Object({ next: nullable(Type.String()) }),
    search_cursors: Type.Null(),
    parsed_query: Type.Null(),
  });

export const queryRuns = defineOperation({
  operationId: 'queryRuns',
  method: 'POST',
  path: '/runs/query',
  summary: 'Query runs, page by page',
  description:
    'Newest first by default. A page may contain fewer runs than `limit`; there are more pages as long as ' +
    '`cursors.next` is not null. New runs do not shift pages.',
  access: { permission: 'runs:read', tenantScope: 'workspace' },
  errors: ['INVALID_FILTER', ...clickhouseErrors],
  schema: {
    body: Query,
    response: { 200: RunPage(Run) },
    // The response contains stored JSON, which must not be serialised again.
    produces: jsonMediaType,
  },
  handler: async ({ caller, body, services, request }) => {
    const deps = addRunExtras(services, request);
    const envelope =
      body.skip_pagination === true ? { ...v1Envelope, after: () => v1Envelope.after(null) } : v1Envelope;
    const query = {
      tenantId: caller.workspaceId,
      ...readRunSet(body),
      selected: selectFields(body.select ?? undefined),
      order: body.order ?? 'desc',
      limitRows: Math.min(body.limit ?? maxPageRows, maxPageRows),
      cursor: body.cursor || undefined,
    } as const;
    return new RawResponse({ body: await readRuns(deps, query, envelope) });
  },
});

/** A query whose fields have values of any type, so that the errors of all fields are in the response. */
const QueryToValidate = Type.Object(
  Object.fromEntries(Object.keys(Query.properties).map((name) => [name, Type.Optional(Type.Unknown())])),
);

const validateRunsQuery = defineOperation({
  operationId: 'validateRunsQuery',
  method: 'POST',
  path: '/runs/query/validate',
  summary: 'Check the filters of a query for runs',
  description: 'Takes the body of the query, and lists what is wrong with each field. Nothing is read.',
  access: { public: true, tenantScope: 'none' },
  schema: {
    body: QueryToValidate,
    response: {
      200: Type.Object({
        valid: Type.Boolean(),
        errors: Type.Array(Type.Object({ field: Type.String(), message: Type.String() })),
      }),
    },
  },
  handler: async ({ body }) => {
    const fields = findQueryErrors(body) ?? [];
    const filters = Object.fromEntries(Object.entries(body).filter(([, value]) => typeof value === 'string'));
    const errors = [
      ...fields.map(({ loc: [, ...path], msg }) => ({ field: path.join('.'), message: msg })),
      ...checkRunFilters(filters),
    ];
    return { valid: errors.length === 0, errors };
  },
});

const findQueryErrors = createErrorFinder(Query, 'body');

/**
 * Returns the ids in lower case. An empty list stays empty and matches no runs, because clients that found no ids send
 * an empty list.
 */
export function normaliseIds(value: string | readonly string[] | null | undefined): string[] | undefined {
  return value == null ? undefined : [value].flat().map((id) => id.toLowerCase());
}

/**
 * Returns the conditions for the runs that a request selects. If the request selects runs by id, no other conditions
 * apply.
 */
export function readRunSet(body: Static<typeof RunSet>): Pick<RunQuery, 'runIds' | 'projectIds' | 'filter'> {
  const runIds = normaliseIds(body.id);
  return runIds === undefined
    ? { projectIds: normaliseIds(body.session), filter: readFilter(body) }
    : { runIds, filter: {} };
}

function readFilter(body: Static<typeof RunSet>): RunFilter {
  return {
    traceId: body.trace?.toLowerCase(),
    parentRunId: body.parent_run?.toLowerCase(),
    runType: body.run_type ?? undefined,
    isRoot: readIsRoot(body),
    hasError: body.error ?? undefined,
    startedFromMicros: parseOptionalTime(body.start_time),
    endedUntilMicros: parseOptionalTime(body.end_time),
    referenceExampleIds: normaliseIds(body.reference_example),
    conditions: parseRunFilters(body),
  };
}

function readIsRoot({ execution_order, is_root }: Static<typeof RunSet>): boolean | undefined {
  if (execution_order == null) return is_root == null ? undefined : Boolean(is_root);
  if (is_root != null && !is_root)
    throw runlakeError('BAD_REQUEST', { reason: 'execution_order 1 contradicts is_root false.' });
  return true;
}

export const runOperations = [getRun, queryRuns, validateRunsQuery];
