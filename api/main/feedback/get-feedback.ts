import { Type } from 'typebox';
import { getFeedback as readFeedback } from '../../../pipelines/feedback/list-feedback.ts';
import { Answer, defineOperation } from '../../server/operation.ts';
import { Feedback, FeedbackParams, feedbackMediaType, includeUserNames } from './feedback-schema.ts';

export const getFeedback = defineOperation({
  operationId: 'getFeedback',
  method: 'GET',
  path: '/feedback/:feedback_id',
  tag: 'feedback',
  summary: 'Get feedback by id',
  access: { permission: 'feedback:read', tenantScope: 'workspace' },
  errors: ['NOT_FOUND'],
  schema: {
    params: FeedbackParams,
    query: Type.Object({ include_user_names: includeUserNames }),
    response: { 200: Feedback },
    produces: feedbackMediaType,
  },
  handler: async ({ caller, params, query, services }) => {
    const id = params.feedback_id.toLowerCase();
    const wanted = { tenantId: caller.workspaceId, id, withUserNames: query.include_user_names };
    return new Answer({ body: await readFeedback(services, wanted) });
  },
});
