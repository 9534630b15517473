import { Type } from 'typebox';
import { isRunlakeError } from '../../infra/errors/runlake-error.ts';
import { exportQueueRuns } from '../../pipelines/queues/export-queue.ts';
import { deleteQueue, readQueue } from '../../pipelines/queues/queue.ts';
import { findItemPosition, listItems, populateQueue } from '../../pipelines/queues/queue-items.ts';
import { sections } from '../../pipelines/queues/queue-runs.ts';
import { isStoredRun } from '../../pipelines/queues/read-queue-runs.ts';
import { requireProjects } from '../../pipelines/runs/locate-run.ts';
import { requirePermission } from '../../pipelines/tenants/caller.ts';
import { OneOf, optional, Uuid } from '../server/formats.ts';
import { defineOperation, RawResponse } from '../server/operation.ts';
import { clickhouseErrors } from '../server/operation-errors.ts';
import { QueueParams } from './annotation-queues.ts';
import { extendParameter, parseReviewTimes, ReviewTimes } from './queue-runs.ts';
import { addRunExtras } from './run-extras.ts';

const csv = 'text/csv; charset=utf-8';

const exportQueue = defineOperation({
  operationId: 'exportAnnotationQueue',
  method: 'POST',
  path: '/annotation-queues/:queue_id/export',
  summary: 'Export the completed runs of an annotation queue as CSV',
  description:
    'Needs the permission `runs:read` too. Columns: `id`, `name`, `session_id`, `trace_id`, `start_time`, `inputs`, `outputs`, `error`, ' +
    '`queue_run_id`, `added_at`, `last_reviewed_time`, `feedback_stats`. An error after the start cuts the response off.',
  access: { permission: 'annotation-queues:read', tenantScope: 'workspace' },
  errors: ['NOT_FOUND', ...clickhouseErrors],
  schema: {
    params: QueueParams,
    body: Type.Object({
      ...ReviewTimes.properties,
      include_annotator_detail: optional(
        Type.Boolean({
          description:
            '`completed_by` and `feedback` (of each user, JSON) in place of `feedback_stats`. Needs the permission `feedback:read`.',
        }),
      ),
    }),
    response: { 200: Type.String({ description: 'The file.' }) },
    produces: csv,
  },
  handler: async ({ caller, params, body, services, request }) => {
    requirePermission(caller, 'runs:read');
    const withReviewers = body.include_annotator_detail ?? false;
    if (withReviewers) requirePermission(caller, 'feedback:read');
    await readQueue(services.database, caller.workspaceId, params.queue_id);
    const items = await listItems(services, caller, params.queue_id, ['completed'], parseReviewTimes(body));
    const runs = items.filter(isStoredRun);
    const deps = addRunExtras(services, request);
    return new RawResponse({
      headers: { 'content-disposition': `attachment; filename="${params.queue_id}.csv"` },
      body: exportQueueRuns(deps, caller, runs, withReviewers),
    });
  },
});

const populateOperation = defineOperation({
  operationId: 'populateAnnotationQueue',
  method: 'POST',
  path: '/annotation-queues/populate',
  summary: 'Add the root runs of experiments to an annotation queue',
  description: 'All or none. Runs that are in the queue stay as they are.',
  access: { permission: 'annotation-queues:update', tenantScope: 'workspace' },
  errors: ['NOT_FOUND', 'QUEUE_FULL', 'NOT_STORED_YET', 'KAFKA_UNAVAILABLE', ...clickhouseErrors],
  schema: {
    body: Type.Object({
      queue_id: Uuid(),
      session_ids: Type.Array(Uuid({ description: 'Experiments, or other projects.' }), { minItems: 1, maxItems: 100 }),
      extend_trace_retention: extendParameter,
    }),
    response: { 200: Type.Object({ message: Type.String() }) },
  },
  handler: async ({ caller, body, services, request }) => {
    const { workspaceId } = caller;
    await readQueue(services.database, workspaceId, body.queue_id);
    const sessionIds = body.session_ids.map((id) => id.toLowerCase());
    const projectIds = await requireProjects(services.database, workspaceId, sessionIds);
    const deps = addRunExtras(services, request);
    const runs = await populateQueue(deps, workspaceId, {
      queueId: body.queue_id,
      projectIds,
      keepsTraces: body.extend_trace_retention ?? false,
    });
    return { message: `${runs} runs are in the queue` };
  },
});

const resolveQueueRun = defineOperation({
  operationId: 'resolveAnnotationQueueRun',
  method: 'GET',
  path: '/annotation-queues/:queue_id/runs/resolve/:queue_run_id',
  summary: 'Find a run in its annotation queue',
  access: { permission: 'annotation-queues:read', tenantScope: 'workspace' },
  errors: ['NOT_FOUND', ...clickhouseErrors],
  schema: {
    params: Type.Object({ ...QueueParams.properties, queue_run_id: Uuid() }),
    response: {
      200: Type.Object({
        section: OneOf(sections, { description: 'For the user of the key.' }),
        position: Type.Integer({ description: 'In the section, from 0.' }),
      }),
    },
  },
  handler: async ({ caller, params, services }) => {
    const { queue_id: queueId, queue_run_id: queueRunId } = params;
    const among = { among: 'runs' } as const;
    const { section, position } = await findItemPosition(services, caller, queueId, queueRunId.toLowerCase(), among);
    return { section, position };
  },
});

const Deleted = Type.Object({
  deleted: Type.Array(Uuid()),
  failed: Type.Array(Type.Object({ queue_id: Uuid(), error: Type.String() })),
});

const deleteQueues = defineOperation({
  operationId: 'deleteAnnotationQueues',
  method: 'DELETE',
  path: '/annotation-queues',
  summary: 'Delete annotation queues',
  description: 'Their runs stay. 207 if some of them do not exist; the others are deleted.',
  access: { permission: 'annotation-queues:delete', tenantScope: 'workspace' },
  schema: {
    query: Type.Object({ queue_ids: Type.Array(Uuid(), { minItems: 1, maxItems: 100 }) }),
    response: { 200: Deleted, 207: Deleted },
  },
  handler: async ({ caller, query, services }) => {
    const deleted: string[] = [];
    const failed: { queue_id: string; error: string }[] = [];
    for (const queueId of new Set(query.queue_ids.map((id) => id.toLowerCase()))) {
      try {
        await deleteQueue(services.database, caller.workspaceId, queueId);
        deleted.push(queueId);
      } catch (error) {
        if (!isRunlakeError(error) || error.class !== 'caller') throw error;
        failed.push({ queue_id: queueId, error: error.message });
      }
    }
    return new RawResponse({ status: failed.length > 0 ? 207 : 200, body: { deleted, failed } });
  },
});

export const queueExportOperations = [exportQueue, populateOperation, resolveQueueRun, deleteQueues];
