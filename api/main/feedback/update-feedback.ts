import { updateFeedback as changeFeedback } from '../../../pipelines/feedback/write-feedback.ts';
import { Answer, defineOperation } from '../../server/operation.ts';
import { requireJson, withBody } from '../ingest.ts';
import { feedbackBodyErrors, feedbackDeps } from './feedback-deps.ts';
import { Feedback, FeedbackParams, feedbackMediaType } from './feedback-schema.ts';

export const updateFeedback = defineOperation({
  operationId: 'updateFeedback',
  method: 'PATCH',
  path: '/feedback/:feedback_id',
  tag: 'feedback',
  summary: 'Update feedback',
  description: 'Absent fields stay unchanged; null removes the value. Not supported yet: feedback_config.',
  access: { permission: 'feedback:write', tenantScope: 'workspace' },
  errors: [...feedbackBodyErrors, 'NOT_FOUND'],
  rawBody: {
    contentTypes: ['application/json'],
    description: 'Any of `score`, `value`, `comment`, `correction`.',
  },
  schema: { params: FeedbackParams, response: { 200: Feedback }, produces: feedbackMediaType },
  handler: async ({ caller, params, request, services }) => {
    requireJson(request);
    const feedback = { tenantId: caller.workspaceId, id: params.feedback_id.toLowerCase() };
    const change = (body: Buffer) => changeFeedback(feedbackDeps(services), feedback, body);
    return new Answer({ body: await withBody({ request, caller }, services.config, change) });
  },
});
