import { Type } from 'typebox';
import { deleteFeedback as removeFeedback } from '../../../pipelines/feedback/write-feedback.ts';
import { defineOperation } from '../../server/operation.ts';
import { feedbackDeps } from './feedback-deps.ts';
import { FeedbackParams } from './feedback-schema.ts';

export const deleteFeedback = defineOperation({
  operationId: 'deleteFeedback',
  method: 'DELETE',
  path: '/feedback/:feedback_id',
  tag: 'feedback',
  summary: 'Delete feedback',
  access: { permission: 'feedback:write', tenantScope: 'workspace' },
  errors: ['NOT_FOUND', 'OVERLOADED', 'EVENT_LOG_UNAVAILABLE'],
  schema: { params: FeedbackParams, response: { 200: Type.Object({ message: Type.String() }) } },
  handler: async ({ caller, params, services }) => {
    await removeFeedback(feedbackDeps(services), caller.workspaceId, params.feedback_id.toLowerCase());
    return { message: 'Feedback deleted' };
  },
});
