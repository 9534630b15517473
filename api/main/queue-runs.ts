import { type Static, Type } from 'typebox';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { findAcceptedRuns } from '../../pipelines/ingest/accept/run-locations.ts';
import { readQueue } from '../../pipelines/queues/queue.ts';
import { listItems } from '../../pipelines/queues/queue-items.ts';
import {
  updateQueueRun as changeQueueRun,
  addQueueRuns as insertQueueRuns,
  type NewQueueRun,
  deleteQueueRun as removeQueueRun,
  deleteQueueRuns as removeQueueRuns,
  reviewStatuses,
  type Section,
  sections,
  setReview,
} from '../../pipelines/queues/queue-runs.ts';
import {
  isStoredRun,
  listStoredQueueRuns,
  readQueuePage,
  readQueueRuns,
  requireThreads,
} from '../../pipelines/queues/read-queue-runs.ts';
import type { ThreadKey } from '../../pipelines/runs/threads.ts';
import { requirePermission, type WorkspaceCaller } from '../../pipelines/tenants/caller.ts';
import { jsonMediaType, nullable, OneOf, optional, parseOptionalTime, Timestamp, Uuid } from '../server/formats.ts';
import { pageParameters } from '../server/list-parameters.ts';
import { defineOperation, RawResponse } from '../server/operation.ts';
import { clickhouseErrors } from '../server/operation-errors.ts';
import type { Services } from '../server/services.ts';
import { QueueParams } from './annotation-queues.ts';
import { addRunExtras } from './run-extras.ts';

/** Operations on the runs of annotation queues. */

/** The stock SDKs send all runs in one request. */
const maxRunsPerRequest = 10_000;

const QueueRunParams = Type.Object({ ...QueueParams.properties, queue_run_id: Uuid() });

const AddedRun = Type.Object({
  id: Uuid({ description: 'Id of the run in the queue.' }),
  queue_id: Uuid(),
  run_id: nullable(Uuid()),
  added_at: Timestamp(),
  last_reviewed_time: nullable(Timestamp()),
  source_proposed_example_id: nullable(Uuid()),
});

const QueueRun = Type.Object(
  {
    id: Uuid(),
    queue_run_id: Uuid({ description: 'Id of the run in the queue.' }),
    added_at: Timestamp(),
    effective_added_at: Timestamp({ description: 'Position in the queue of the user of the key.' }),
    last_reviewed_time: nullable(Timestamp()),
    source_proposed_example_id: nullable(Uuid()),
    completed_by: Type.Array(Uuid()),
    reserved_by: Type.Array(Uuid()),
  },
  { additionalProperties: true, description: 'The run, as `POST /runs/query` returns it, with these fields.' },
);

/** Time range in which runs were last reviewed. */
export const ReviewTimes = Type.Object({
  start_time: optional(Timestamp({ description: 'Last review, inclusive.' })),
  end_time: optional(Timestamp({ description: 'Last review, exclusive.' })),
});

export const parseReviewTimes = ({ start_time, end_time }: Static<typeof ReviewTimes>) => ({
  reviewedFromMicros: parseOptionalTime(start_time),
  reviewedBeforeMicros: parseOptionalTime(end_time),
});

const Message = Type.Object({ message: Type.String() });
const QueueSize = Type.Object({ size: Type.Integer() });
const SectionParameter = Type.Optional(OneOf(sections, { description: 'For the user of the key.' }));
const incompleteSections = ['needs_my_review', 'needs_others_review'] as const;

/** `archived` means completed; without it, the runs of all sections are listed. */
function chooseSections(archived: boolean | null | undefined): readonly Section[] {
  if (archived == null) return sections;
  return archived ? ['completed'] : incompleteSections;
}

interface ItemsToAdd {
  readonly runs: readonly NewQueueRun[];
  readonly threads?: readonly ThreadKey[];
  /** Whether the traces of the runs become longlived. */
  readonly keepsTraces?: boolean | undefined;
}

/** Adds runs and threads that are stored in the workspace. @throws NOT_FOUND if one is not; errors of `findAcceptedRuns`. */
export async function addRuns(
  services: Services,
  caller: WorkspaceCaller,
  queueId: string,
  { runs, threads = [], keepsTraces = false }: ItemsToAdd,
) {
  const { accept, database } = services;
  await readQueue(database, caller.workspaceId, queueId);
  // The runs may have been sent just before this request.
  const runIds = runs.map(({ runId }) => runId);
  const found = await findAcceptedRuns(caller.workspaceId, runIds, accept);
  if (found === undefined) throw runlakeError('NOT_FOUND', { what: 'Run' });
  const traceIds = found.map(({ traceId }) => traceId);
  await requireThreads(services, caller.workspaceId, threads);
  return insertQueueRuns(services, caller.workspaceId, queueId, [...runs, ...threads], keepsTraces ? traceIds : []);
}

export const extendParameter = Type.Optional(
  Type.Boolean({
    description: 'Whether the traces of the runs become longlived, as by `POST /runs/keep`. Default: false.',
  }),
);
const ExtendQuery = Type.Object({ extend_trace_retention: extendParameter });

const RunToAdd = Type.Object({ run_id: Uuid(), source_proposed_example_id: optional(Uuid()) });

const toNewRun = (run: { run_id: string; source_proposed_example_id?: string | null }): NewQueueRun => ({
  runId: run.run_id.toLowerCase(),
  sourceProposedExampleId: run.source_proposed_example_id,
});

const addOperation = {
  method: 'POST',
  access: { permission: 'annotation-queues:update', tenantScope: 'workspace' },
  errors: ['NOT_FOUND', 'QUEUE_FULL', 'NOT_STORED_YET', 'KAFKA_UNAVAILABLE', ...clickhouseErrors],
} as const;

const addQueueRuns = defineOperation({
  ...addOperation,
  operationId: 'addAnnotationQueueRuns',
  path: '/annotation-queues/:queue_id/runs',
  summary: 'Add runs to an annotation queue',
  description: 'All or none. Runs that are in the queue stay as they are.',
  maxBodyBytes: 200 * maxRunsPerRequest,
  schema: {
    params: QueueParams,
    query: ExtendQuery,
    body: Type.Array(Type.Union([Uuid(), RunToAdd]), { maxItems: maxRunsPerRequest }),
    response: { 200: Type.Array(AddedRun) },
  },
  handler: async ({ caller, params, query, body, services }) =>
    addRuns(services, caller, params.queue_id, {
      runs: body.map((run) => toNewRun(typeof run === 'string' ? { run_id: run } : run)),
      keepsTraces: query.extend_trace_retention,
    }),
});

const addQueueRunsByKey = defineOperation({
  ...addOperation,
  operationId: 'addAnnotationQueueRunsByKey',
  path: '/annotation-queues/:queue_id/runs/by-key',
  summary: 'Add runs to an annotation queue by their keys',
  description: 'All or none. `session_id` and `start_time` are accepted; Runlake needs only the ids of the runs.',
  // The SDKs send about 160 characters for a run.
  maxBodyBytes: 400 * maxRunsPerRequest,
  schema: {
    params: QueueParams,
    query: ExtendQuery,
    body: Type.Array(Type.Object({ ...RunToAdd.properties, session_id: Uuid(), start_time: Timestamp() }), {
      maxItems: maxRunsPerRequest,
    }),
    response: { 200: Type.Array(AddedRun) },
  },
  handler: async ({ caller, params, query, body, services }) =>
    addRuns(services, caller, params.queue_id, {
      runs: body.map(toNewRun),
      keepsTraces: query.extend_trace_retention,
    }),
});

const reading = {
  method: 'GET',
  access: { permission: 'annotation-queues:read', tenantScope: 'workspace' },
  errors: ['NOT_FOUND', ...clickhouseErrors],
} as const;

const listQueueRuns = defineOperation({
  ...reading,
  operationId: 'listAnnotationQueueRuns',
  path: '/annotation-queues/:queue_id/runs',
  summary: 'List the runs of an annotation queue, oldest first',
  description: 'Needs the permission `runs:read` too. Deleted and expired runs are left out.',
  schema: {
    params: QueueParams,
    query: Type.Object({
      status: SectionParameter,
      archived: Type.Optional(Type.Boolean({ description: 'Only completed runs, or only others. Default: all.' })),
      include_stats: Type.Optional(Type.Boolean({ description: 'Accepted; the feedback is always included.' })),
      ...pageParameters,
    }),
    response: { 200: Type.Array(QueueRun) },
    produces: jsonMediaType,
  },
  handler: async ({ caller, params, query, services, request }) => {
    requirePermission(caller, 'runs:read');
    await readQueue(services.database, caller.workspaceId, params.queue_id);
    const wanted = query.status ? [query.status] : chooseSections(query.archived);
    const listed = await listStoredQueueRuns(services, caller, params.queue_id, wanted);
    const deps = addRunExtras(services, request);
    const page = listed.slice(query.offset, query.offset + query.limit);
    return new RawResponse({
      headers: { 'x-pagination-total': String(listed.length) },
      body: await readQueuePage(deps, caller.workspaceId, page),
    });
  },
});

const getQueueRun = defineOperation({
  ...reading,
  operationId: 'getAnnotationQueueRun',
  path: '/annotation-queues/:queue_id/run/:index',
  summary: 'Get a run of those that the user of the key has to review',
  description: 'Needs the permission `runs:read` too. The index of the oldest run is 0.',
  schema: {
    params: Type.Object({ ...QueueParams.properties, index: Type.String({ pattern: '^\\d{1,6}$' }) }),
    query: Type.Object({ include_extra: Type.Optional(Type.Boolean({ description: 'Accepted; always included.' })) }),
    response: { 200: QueueRun },
    produces: jsonMediaType,
  },
  handler: async ({ caller, params, services, request }) => {
    requirePermission(caller, 'runs:read');
    const listed = await listStoredQueueRuns(services, caller, params.queue_id, ['needs_my_review']);
    const index = Number(params.index);
    const deps = addRunExtras(services, request);
    const runs = readQueueRuns(deps, caller.workspaceId, listed.slice(index, index + 1));
    const { value: [run] = [] } = await runs.next();
    if (run === undefined) throw runlakeError('NOT_FOUND', { what: 'Run of the queue' });
    return new RawResponse({ body: Buffer.from(run) });
  },
});

const getQueueSize = defineOperation({
  ...reading,
  operationId: 'getAnnotationQueueSize',
  path: '/annotation-queues/:queue_id/size',
  summary: 'Count the runs of an annotation queue that are not completed, or those with a status',
  schema: { params: QueueParams, query: Type.Object({ status: SectionParameter }), response: { 200: QueueSize } },
  handler: async ({ caller, params, query, services }) =>
    countRuns(services, caller, params.queue_id, query.status ? [query.status] : incompleteSections),
});

const getQueueTotalSize = defineOperation({
  ...reading,
  operationId: 'getAnnotationQueueTotalSize',
  path: '/annotation-queues/:queue_id/total_size',
  summary: 'Count all runs of an annotation queue',
  schema: { params: QueueParams, response: { 200: QueueSize } },
  handler: async ({ caller, params, services }) => countRuns(services, caller, params.queue_id, sections),
});

const getQueueTotalArchived = defineOperation({
  ...reading,
  operationId: 'getAnnotationQueueTotalArchived',
  path: '/annotation-queues/:queue_id/total_archived',
  summary: 'Count the completed runs of an annotation queue',
  schema: { params: QueueParams, query: ReviewTimes, response: { 200: QueueSize } },
  handler: async ({ caller, params, query, services }) => {
    await readQueue(services.database, caller.workspaceId, params.queue_id);
    const times = parseReviewTimes(query);
    const items = await listItems(services, caller, params.queue_id, ['completed'], times);
    return { size: items.filter(isStoredRun).length };
  },
});

async function countRuns(
  services: Services,
  caller: WorkspaceCaller,
  queueId: string,
  wanted: readonly (typeof sections)[number][],
) {
  await readQueue(services.database, caller.workspaceId, queueId);
  return { size: (await listStoredQueueRuns(services, caller, queueId, wanted)).length };
}

const changing = {
  access: { permission: 'annotation-queues:update', tenantScope: 'workspace' },
} as const;

const updateQueueRun = defineOperation({
  ...changing,
  operationId: 'updateAnnotationQueueRun',
  method: 'PATCH',
  path: '/annotation-queues/:queue_id/runs/:queue_run_id',
  summary: 'Change the times of a run in an annotation queue',
  description: 'Absent and null fields stay unchanged.',
  errors: ['NOT_FOUND'],
  schema: {
    params: QueueRunParams,
    body: Type.Object({ added_at: optional(Timestamp()), last_reviewed_time: optional(Timestamp()) }),
    response: { 200: Message },
  },
  handler: async ({ caller, params, body, services }) => {
    const { queue_id: queueId, queue_run_id: queueRunId } = params;
    const change = { addedAt: body.added_at, lastReviewedTime: body.last_reviewed_time };
    await changeQueueRun(services.database, caller.workspaceId, { queueId, queueRunId }, change);
    return { message: 'Run of the queue updated' };
  },
});

const deleteQueueRun = defineOperation({
  ...changing,
  operationId: 'deleteAnnotationQueueRun',
  method: 'DELETE',
  path: '/annotation-queues/:queue_id/runs/:queue_run_id',
  summary: 'Remove a run from an annotation queue',
  description: '`queue_run_id` may also be the id of the run itself.',
  errors: ['NOT_FOUND'],
  schema: { params: QueueRunParams, response: { 200: Message } },
  handler: async ({ caller, params, services }) => {
    const { queue_id: queueId, queue_run_id: queueRunId } = params;
    await removeQueueRun(services.database, caller.workspaceId, { queueId, queueRunId });
    return { message: 'Run removed from the queue' };
  },
});

const QueueRunIds = optional(Type.Array(Uuid(), { maxItems: 10_000, description: 'Ids of runs in the queue.' }));

const deleteQueueRuns = defineOperation({
  ...changing,
  operationId: 'deleteAnnotationQueueRuns',
  method: 'POST',
  path: '/annotation-queues/:queue_id/runs/delete',
  summary: 'Remove runs from an annotation queue',
  description: 'Those in `run_ids`, or with `delete_all` all except those in `exclude_run_ids`.',
  errors: ['NOT_FOUND'],
  schema: {
    params: QueueParams,
    body: Type.Object({
      run_ids: QueueRunIds,
      delete_all: optional(Type.Boolean()),
      exclude_run_ids: QueueRunIds,
    }),
    response: { 200: Message },
  },
  handler: async ({ caller, params, body, services }) => {
    const selection = body.delete_all ? { keep: body.exclude_run_ids ?? [] } : { only: body.run_ids ?? [] };
    await removeQueueRuns(services.database, caller.workspaceId, params.queue_id, selection);
    return { message: 'Runs removed from the queue' };
  },
});

/** Clients say `viewed` for `in_progress`. */
export const ReviewBody = Type.Object({
  status: optional(OneOf([...reviewStatuses, 'viewed'])),
  override_added_at: optional(Timestamp()),
});

export const toReview = ({ status, override_added_at }: Static<typeof ReviewBody>) => ({
  status: status === 'viewed' ? 'in_progress' : status,
  overrideAddedAt: override_added_at,
});

const setReviewStatus = defineOperation({
  ...changing,
  operationId: 'setAnnotationQueueRunStatus',
  method: 'POST',
  path: '/annotation-queues/status/:queue_run_id',
  summary: 'Reserve or complete a run of an annotation queue, for the user of the key',
  description:
    '`in_progress` (or `viewed`) reserves it for `reservation_minutes`; 409 for both if enough other users are reviewing it or have completed it. Null withdraws the review. ' +
    '`override_added_at` moves the run in the queue of this user.',
  errors: ['NOT_FOUND', 'RUN_RESERVED', 'REVIEWER_NOT_ASSIGNED'],
  schema: {
    params: Type.Object({ queue_run_id: Uuid() }),
    body: ReviewBody,
    response: { 200: Message },
  },
  handler: async ({ caller, params, body, services }) => {
    const review = toReview(body);
    await setReview(services.database, caller, params.queue_run_id, review);
    return { message: 'Status set' };
  },
});

export const queueRunOperations = [
  listQueueRuns,
  addQueueRuns,
  addQueueRunsByKey,
  getQueueRun,
  getQueueSize,
  getQueueTotalSize,
  getQueueTotalArchived,
  updateQueueRun,
  deleteQueueRun,
  deleteQueueRuns,
  setReviewStatus,
];
