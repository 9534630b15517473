import type { FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import { runForTenant } from '../../infra/fairness/tenant-context.ts';
import { parseRunFilters } from '../../pipelines/runs/filter/run-filter.ts';
import type { ReadDeps } from '../../pipelines/runs/locate-run.ts';
import {
  listEnvelope,
  listRuns,
  queryRuns,
  readOneRun,
  v1Envelope,
  v2ListEnvelope,
} from '../../pipelines/runs/query-runs.ts';
import { selectPublicFields, selectPublicV2Fields } from '../../pipelines/runs/run-select.ts';
import { openShare, type SharedRuns } from '../../pipelines/runs/shared-traces.ts';
import { identifyShare } from '../../pipelines/shares/share-tokens.ts';
import { jsonMediaType, optional, Timestamp, Uuid } from '../server/formats.ts';
import { defineOperation, RawResponse } from '../server/operation.ts';
import type { Services } from '../server/services.ts';
import { addRunExtras } from './run-extras.ts';
import { maxPageRows, normaliseIds, oneOrMore, PublicRun, RunPage } from './runs.ts';
import { SelectList, V2Run, v2Errors } from './v2-runs.ts';

export const ShareParams = Type.Object({ share_token: Uuid() });
const SharedRunParams = Type.Object({ share_token: Uuid(), run_id: Uuid() });
/** Access with a share token instead of an API key. */
export const publicAccess = { public: true, tenantScope: 'none' } as const;
const publicErrors = [...v2Errors, 'DATABASE_UNAVAILABLE', 'DATABASE_QUERY_FAILED', 'BAD_REQUEST'] as const;
/** Prevents caching, because a resource can stop being shared at any time. */
export const publicHeaders = { 'cache-control': 'no-store', 'referrer-policy': 'no-referrer' };

/** Reads shared runs. Requests for shared resources count towards the usage of the organisation that owns the runs. */
async function readSharedRuns(
  services: Services,
  request: FastifyRequest,
  { token, filter = null }: { readonly token: string; readonly filter?: string | null | undefined },
  read: (deps: ReadDeps, shared: SharedRuns) => Promise<Buffer>,
): Promise<RawResponse> {
  const shared = await openShare(services.database, token, parseRunFilters({ filter }));
  const deps = addRunExtras(services, request);
  const { disconnected } = request;
  const body = await runForTenant({ organizationId: shared.organizationId, disconnected }, () => read(deps, shared));
  return new RawResponse({ body, headers: publicHeaders });
}

const getSharedTrace = defineOperation({
  operationId: 'getSharedTrace',
  method: 'GET',
  path: '/public/:share_token/run',
  // The page that links from the SDKs point to.
  aliases: ['/public/:share_token/r'],
  summary: 'Get the root run of a shared trace',
  description: 'Of a shared thread: the root run of its newest trace.',
  access: publicAccess,
  errors: publicErrors,
  schema: { params: ShareParams, response: { 200: PublicRun }, produces: jsonMediaType },
  handler: ({ params, services, request }) =>
    // The root run of an OpenTelemetry trace does not have the id of the trace.
    readSharedRuns(services, request, { token: params.share_token }, (deps, { filter, ...shared }) =>
      readOneRun(deps, { ...shared, filter: { ...filter, isRoot: true }, selected: selectPublicFields() }),
    ),
});

const getSharedRun = defineOperation({
  operationId: 'getSharedRun',
  method: 'GET',
  path: '/public/:share_token/run/:run_id',
  summary: 'Get a run of a shared trace',
  access: publicAccess,
  errors: publicErrors,
  schema: { params: SharedRunParams, response: { 200: PublicRun }, produces: jsonMediaType },
  handler: ({ params, services, request }) =>
    readSharedRuns(services, request, { token: params.share_token }, (deps, shared) =>
      readOneRun(deps, { ...shared, runIds: [params.run_id.toLowerCase()], selected: selectPublicFields() }),
    ),
});

const listSharedRuns = defineOperation({
  operationId: 'listSharedRuns',
  method: 'GET',
  path: '/public/:share_token/runs',
  summary: 'List all runs of a shared trace',
  description: 'Newest first. 400 if the runs are too large for one response; query them page by page then.',
  access: publicAccess,
  errors: publicErrors,
  schema: {
    params: ShareParams,
    query: Type.Object({
      share_token: Type.Optional(Uuid({ description: 'Accepted; the path has the token.' })),
      id: Type.Optional(Type.Array(Uuid(), { maxItems: 1_000, description: 'Only these runs.' })),
    }),
    response: { 200: Type.Array(PublicRun) },
    produces: jsonMediaType,
  },
  handler: ({ params, query, services, request }) =>
    readSharedRuns(services, request, { token: params.share_token }, (deps, shared) => {
      const runIds = normaliseIds(query.id);
      return listRuns(deps, { ...shared, runIds, selected: selectPublicFields(), order: 'desc' }, listEnvelope);
    }),
});

export const sharedQueryFields = {
  filter: optional(Type.String({ description: 'Condition on the run; see the guide.' })),
  cursor: optional(Type.String({ description: '`cursors.next` of the previous page.' })),
  limit: optional(Type.Integer({ minimum: 1, maximum: maxPageRows, default: maxPageRows })),
};

const querySharedRuns = defineOperation({
  operationId: 'querySharedRuns',
  method: 'POST',
  path: '/public/:share_token/runs/query',
  summary: 'Query the runs of a shared trace, page by page',
  access: publicAccess,
  errors: ['INVALID_FILTER', 'RATE_LIMITED', ...publicErrors],
  schema: {
    params: ShareParams,
    body: Type.Object({
      id: oneOrMore(Uuid(), 1_000, 'Only these runs.'),
      ...sharedQueryFields,
    }),
    response: { 200: RunPage(PublicRun) },
    produces: jsonMediaType,
  },
  handler: ({ params, body, services, request }) =>
    readSharedRuns(services, request, { token: params.share_token, filter: body.filter }, async (deps, shared) => {
      if (body.filter) await services.rateLimiter.takeSharedSearch({ targetId: identifyShare(params.share_token) });
      const query = {
        ...shared,
        runIds: normaliseIds(body.id),
        selected: selectPublicFields(),
        order: 'desc' as const,
        limitRows: body.limit ?? maxPageRows,
        cursor: body.cursor || undefined,
      };
      return queryRuns(deps, query, v1Envelope);
    }),
});

const publicSelectDescription = 'Of `selects`, fields that a shared trace does not show are omitted.';

const getSharedV2Run = defineOperation({
  operationId: 'getSharedV2Run',
  method: 'GET',
  path: '/v2/public/:share_token/run/:run_id',
  summary: 'Get the selected fields of a run of a shared trace',
  description: publicSelectDescription,
  access: publicAccess,
  errorStyle: 'problem',
  errors: publicErrors,
  schema: {
    params: SharedRunParams,
    query: Type.Object({
      start_time: Type.Optional(Timestamp({ description: 'Accepted; Runlake needs only the id of the run.' })),
      selects: Type.Optional(SelectList()),
    }),
    response: { 200: V2Run },
    produces: jsonMediaType,
  },
  handler: ({ params, query, services, request }) =>
    readSharedRuns(services, request, { token: params.share_token }, (deps, shared) =>
      readOneRun(deps, {
        ...shared,
        runIds: [params.run_id.toLowerCase()],
        selected: selectPublicV2Fields(query.selects),
      }),
    ),
});

const listSharedV2Runs = defineOperation({
  operationId: 'listSharedV2Runs',
  method: 'POST',
  path: '/v2/public/:share_token/runs/query',
  summary: 'List the selected fields of all runs of a shared trace',
  description: `Oldest first. 400 if the runs are too large for one response; select fewer fields then. ${publicSelectDescription}`,
  access: publicAccess,
  errorStyle: 'problem',
  errors: publicErrors,
  schema: {
    params: ShareParams,
    body: Type.Object({ selects: optional(SelectList()) }),
    response: { 200: Type.Object({ items: Type.Array(V2Run) }) },
    produces: jsonMediaType,
  },
  handler: ({ params, body, services, request }) =>
    readSharedRuns(services, request, { token: params.share_token }, (deps, shared) => {
      const selected = selectPublicV2Fields(body.selects ?? undefined);
      return listRuns(deps, { ...shared, selected, order: 'asc' }, v2ListEnvelope);
    }),
});

export const sharedRunOperations = [
  getSharedTrace,
  getSharedRun,
  listSharedRuns,
  querySharedRuns,
  getSharedV2Run,
  listSharedV2Runs,
];
