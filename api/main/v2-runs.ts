import { type Static, Type } from 'typebox';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { Dictionary } from '../../infra/json/dictionary.ts';
import { runTypes } from '../../pipelines/ingest/run-event/run-event.ts';
import { parseRunFilters } from '../../pipelines/runs/filter/run-filter.ts';
import { getRun, readDatasetProjectIds, requireProjects } from '../../pipelines/runs/locate-run.ts';
import { queryRuns, v2Envelope } from '../../pipelines/runs/query-runs.ts';
import { selectV2Fields } from '../../pipelines/runs/run-select.ts';
import { type V2FieldName, v2Fields } from '../../pipelines/runs/v2-fields.ts';
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
import { buildPageUrl } from '../server/public-base.ts';
import type { Services } from '../server/services.ts';
import { buildQueryResponse, pageMediaTypes } from './query-stream.ts';
import { addRunExtras } from './run-extras.ts';
import { normaliseIds } from './runs.ts';

export const uppercaseNames = <Name extends string>(names: readonly Name[]) =>
  names.map((name) => name.toUpperCase() as Uppercase<Name>);
const RunType = OneOf(uppercaseNames(runTypes));
const selectNames = uppercaseNames(Object.keys(v2Fields) as V2FieldName[]);

/** Names of the fields that a response contains. With `null` or an empty list, the response contains only the id. */
export const SelectList = (names: readonly string[] = selectNames) =>
  Type.Array(OneOf(names), {
    maxItems: 200,
    description: 'Fields of the response; only `ID` if none is given.',
  });

const Time = () => nullable(Timestamp());
const Costs = () => nullable(Type.Object({ raw: Dictionary(Type.Number()) }));
const Count = () => Type.Integer();
const NullableText = () => nullable(Type.String());

/** A run in a response of API version 2. It has only the fields that the request selects. */
export const V2Run = Type.Partial(
  Type.Object({
    id: Uuid(),
    name: Type.String(),
    run_type: RunType,
    status: OneOf(['SUCCESS', 'ERROR', 'PENDING']),
    start_time: Timestamp(),
    end_time: Time(),
    latency_seconds: nullable(Type.Number()),
    first_token_time: Time(),
    error: NullableText(),
    error_preview: NullableText(),
    extra: RawJson(),
    metadata: nullable(JsonObject()),
    events: RawJson('The JSON that was sent, byte for byte; usually a list of objects.'),
    inputs: RawJson('The JSON that was sent, byte for byte; usually an object. `{}` if none was sent.'),
    inputs_preview: NullableText(),
    outputs: RawJson(),
    outputs_preview: NullableText(),
    manifest: RawJson('`serialized` of the run.'),
    parent_run_id: nullable(Uuid()),
    parent_run_ids: Type.Array(Uuid(), { description: 'From the root to the parent.' }),
    project_id: Uuid(),
    trace_id: Uuid(),
    thread_id: NullableText(),
    dotted_order: Type.String(),
    is_root: Type.Boolean(),
    reference_example_id: nullable(Uuid()),
    reference_dataset_id: nullable(Uuid()),
    total_tokens: Count(),
    prompt_tokens: Count(),
    completion_tokens: Count(),
    total_cost: nullable(Type.Number()),
    prompt_cost: nullable(Type.Number()),
    completion_cost: nullable(Type.Number()),
    prompt_token_details: Costs(),
    completion_token_details: Costs(),
    prompt_cost_details: Costs(),
    completion_cost_details: Costs(),
    price_model_id: nullable(Uuid()),
    tags: nullable(Type.Array(Type.String())),
    app_path: Type.String(),
    attachments: nullable(Dictionary(Type.String(), { description: 'Name to a link for an hour.' })),
    thread_evaluation_time: Time(),
    is_in_dataset: Type.Boolean(),
    last_queued_at: Time(),
    share_url: nullable(Type.String({ description: 'URL of the public view, if the trace is shared.' })),
    feedback_stats: nullable(Dictionary(JsonObject())),
    ls_user_id: Type.Null({ description: 'Runs are stored without their user.' }),
  }),
);

export const v2Errors = ['NOT_FOUND', ...clickhouseErrors] as const;

const getV2Run = defineOperation({
  operationId: 'getV2Run',
  method: 'GET',
  path: '/v2/runs/:run_id',
  summary: 'Get the selected fields of a run',
  access: { permission: 'runs:read', tenantScope: 'workspace' },
  errorStyle: 'problem',
  errors: v2Errors,
  schema: {
    params: Type.Object({ run_id: Uuid() }),
    query: Type.Object({
      project_id: Uuid({ description: '404 if the run is not in this project.' }),
      start_time: Type.Optional(Timestamp({ description: 'Accepted; Runlake needs only the id of the run.' })),
      selects: Type.Optional(SelectList()),
    }),
    response: { 200: V2Run },
    produces: jsonMediaType,
  },
  handler: async ({ caller, params, query, services, request }) => {
    const deps = addRunExtras(services, request);
    const body = await getRun(deps, {
      tenantId: caller.workspaceId,
      runId: params.run_id.toLowerCase(),
      projectId: query.project_id.toLowerCase(),
      selected: selectV2Fields(query.selects),
    });
    return new RawResponse({ body });
  },
});

const getV2RunUrl = defineOperation({
  operationId: 'getV2RunUrl',
  method: 'GET',
  path: '/v2/runs/:run_id/url',
  summary: 'Get the URL of the page of a run',
  access: { permission: 'runs:read', tenantScope: 'workspace' },
  errorStyle: 'problem',
  errors: v2Errors,
  schema: {
    params: Type.Object({ run_id: Uuid() }),
    query: Type.Object({
      project_id: Uuid({ description: '404 if the run is not in this project.' }),
      trace_id: Uuid({ description: '404 if the run is not in this trace.' }),
      start_time: Type.Optional(Timestamp({ description: 'Accepted; Runlake needs only the id of the run.' })),
    }),
    response: { 200: Type.Object({ url: Type.String() }) },
  },
  handler: async ({ caller, params, query, services, request }) => {
    const deps = addRunExtras(services, request);
    const run = await getRun(deps, {
      tenantId: caller.workspaceId,
      runId: params.run_id.toLowerCase(),
      projectId: query.project_id.toLowerCase(),
      traceId: query.trace_id.toLowerCase(),
      selected: selectV2Fields(['APP_PATH']),
    });
    const { app_path } = JSON.parse(run.toString()) as { app_path: string };
    return { url: buildPageUrl(app_path, request, services.config) };
  },
});

const maxPageSize = 1_000;
const defaultPageSize = 100;
const maxIds = 1_000;
export const dayMicros = 86_400_000_000;

const Ids = (description: string) => optional(Type.Array(Uuid(), { maxItems: maxIds, description }));

/** Returns the paging parameters of list requests in API version 2. */
export const buildPageFields = (maxSize: number, defaultSize: number) => ({
  page_size: optional(Type.Integer({ minimum: 1, maximum: maxSize, default: defaultSize })),
  cursor: optional(Type.String({ description: '`next_cursor` of the previous page.' })),
});

export const PageResponse = <T extends ReturnType<typeof Type.Object>>(item: T) =>
  Type.Object({ items: Type.Array(item), next_cursor: nullable(Type.String()), has_more: Type.Boolean() });

const Query = Type.Object({
  project_ids: Ids('Projects. Exclusive with `reference_dataset_id`; one of them is required.'),
  reference_dataset_id: optional(Uuid({ description: 'All experiments on this dataset.' })),
  ids: Ids('Only these runs.'),
  trace_id: optional(Uuid()),
  run_type: optional(RunType),
  is_root: optional(Type.Boolean()),
  has_error: optional(Type.Boolean({ description: '`false`: runs that have ended without an error.' })),
  min_start_time: optional(
    Timestamp({ description: 'Inclusive. Default: a day ago; without limit if `reference_dataset_id` is given.' }),
  ),
  max_start_time: optional(Timestamp({ description: 'Inclusive. Default: no limit.' })),
  filter: optional(Type.String({ description: 'Condition on the run; see the guide.' })),
  trace_filter: optional(Type.String({ description: 'Condition on the root run of its trace.' })),
  tree_filter: optional(Type.String({ description: 'Condition that some run of its trace satisfies.' })),
  reference_examples: Ids('Runs of these examples.'),
  selects: optional(SelectList()),
  include_subtree_usage: optional(
    Type.Boolean({
      description:
        'Accepted: tokens and costs of a run always include those of the model calls below it. `first_token_time` is that of the run.',
    }),
  ),
  sort_order: optional(
    OneOf(['ASC', 'DESC'], {
      default: 'DESC',
      description: 'By the start time in dotted_order.',
    }),
  ),
  ...buildPageFields(maxPageSize, defaultPageSize),
});

const queryV2Runs = defineOperation({
  operationId: 'queryV2Runs',
  method: 'POST',
  path: '/v2/runs/query',
  summary: 'Query the selected fields of runs, page by page',
  description:
    'Newest first by default. A page may contain fewer runs than `page_size`; there are more pages as long as ' +
    '`has_more` is true. New runs do not shift pages.',
  access: { permission: 'runs:read', tenantScope: 'workspace' },
  errorStyle: 'problem',
  unsupported: {
    body: ['ai_query', 'ai_search', 'sem_filter', 'min_feedback_modified_at', 'max_feedback_modified_at'],
  },
  errors: ['INVALID_FILTER', ...v2Errors],
  schema: { body: Query, response: { 200: PageResponse(V2Run) }, ...pageMediaTypes },
  handler: async ({ caller, body, services, request }) => {
    const deps = addRunExtras(services, request);
    const untilMicros = parseOptionalTime(body.max_start_time);
    const query = {
      tenantId: caller.workspaceId,
      runIds: normaliseIds(body.ids),
      projectIds: await resolveProjects(services, caller.workspaceId, body),
      filter: {
        traceId: body.trace_id?.toLowerCase(),
        runType: runTypes.find((type) => type.toUpperCase() === body.run_type),
        isRoot: body.is_root ?? undefined,
        hasError: body.has_error ?? undefined,
        hasEnded: body.has_error === false,
        startedFromMicros: readMinStartTime(body),
        startedBeforeMicros: untilMicros === undefined ? undefined : untilMicros + 1,
        referenceExampleIds: normaliseIds(body.reference_examples),
        conditions: parseRunFilters(body),
      },
      selected: selectV2Fields(body.selects ?? undefined),
      order: body.sort_order === 'ASC' ? ('asc' as const) : ('desc' as const),
      limitRows: body.page_size ?? defaultPageSize,
      cursor: body.cursor || undefined,
    };
    return buildQueryResponse(request, await queryRuns(deps, query, v2Envelope));
  },
});

async function resolveProjects(
  { database }: Services,
  tenantId: string,
  { project_ids, reference_dataset_id }: Static<typeof Query>,
): Promise<readonly string[]> {
  if ((project_ids == null) === (reference_dataset_id == null)) {
    throw runlakeError('BAD_REQUEST', { reason: 'Send either project_ids or reference_dataset_id.' });
  }
  if (project_ids == null) return readDatasetProjectIds(database, tenantId, reference_dataset_id ?? '');
  return requireProjects(database, tenantId, normaliseIds(project_ids) ?? []);
}

function readMinStartTime({ min_start_time, reference_dataset_id }: Static<typeof Query>): number | undefined {
  const requestedStart = parseOptionalTime(min_start_time);
  if (requestedStart !== undefined || reference_dataset_id != null) return requestedStart;
  return Date.now() * 1_000 - dayMicros;
}

export const v2RunOperations = [queryV2Runs, getV2Run, getV2RunUrl];
