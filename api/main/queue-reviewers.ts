import { Type } from 'typebox';
import { addReviewer, removeReviewer } from '../../pipelines/queues/reviewers.ts';
import { Uuid } from '../server/formats.ts';
import { defineOperation } from '../server/operation.ts';
import { QueueParams } from './annotation-queues.ts';

/** Users that have to review the runs of an annotation queue. */

const path = '/v1/platform/annotation-queues/:queue_id/reviewers';
const shared = {
  errorStyle: 'error',
  access: { permission: 'annotation-queues:update', tenantScope: 'workspace' },
} as const;
const Reviewer = Type.Object({ identity_id: Uuid({ description: 'Id of a user of the organization.' }) });

const addQueueReviewer = defineOperation({
  ...shared,
  operationId: 'addAnnotationQueueReviewer',
  method: 'POST',
  path,
  summary: 'Make a user a reviewer of an annotation queue',
  description: 'With `reviewer_access_mode: assigned`, a run is completed when all reviewers have completed it.',
  errors: ['NOT_FOUND', 'QUEUE_FULL'],
  schema: { params: QueueParams, body: Reviewer, response: { 201: Reviewer } },
  handler: async ({ caller, params, body, services }) => {
    const userId = body.identity_id.toLowerCase();
    await addReviewer(services.database, caller, params.queue_id, userId);
    return { identity_id: userId };
  },
});

const removeQueueReviewer = defineOperation({
  ...shared,
  operationId: 'removeAnnotationQueueReviewer',
  method: 'DELETE',
  path: `${path}/:identity_id`,
  summary: 'Remove a reviewer from an annotation queue',
  description: 'The reviews of the user stay.',
  errors: ['NOT_FOUND'],
  schema: {
    params: Type.Object({ ...QueueParams.properties, ...Reviewer.properties }),
    response: { 204: Type.Null() },
  },
  handler: async ({ caller, params, services }) => {
    await removeReviewer(services.database, caller.workspaceId, params.queue_id, params.identity_id);
    return null;
  },
});

export const queueReviewerOperations = [addQueueReviewer, removeQueueReviewer];
