import { createFeedback as takeFeedback } from '../../../pipelines/feedback/write-feedback.ts';
import { Answer, defineOperation } from '../../server/operation.ts';
import { requireJson, senderOf, withBody } from '../ingest.ts';
import { feedbackBodyErrors, feedbackDeps } from './feedback-deps.ts';
import { Feedback, feedbackMediaType } from './feedback-schema.ts';

export const createFeedback = defineOperation({
  operationId: 'createFeedback',
  method: 'POST',
  path: '/feedback',
  aliases: ['/feedback/eager'],
  tag: 'feedback',
  summary: 'Send feedback on a run or a project',
  description:
    'The run may arrive later. Feedback with the same id is replaced. ' +
    'Not supported yet: feedback_config, address.',
  access: { permission: 'feedback:write', tenantScope: 'workspace' },
  errors: [...feedbackBodyErrors, 'PROJECT_UNKNOWN'],
  rawBody: {
    contentTypes: ['application/json'],
    description:
      '`key` (at most 180 characters), one of `run_id` and `session_id`, and any of `id`, `trace_id`, `score` (number or boolean), ' +
      '`value`, `comment`, `correction`, `feedback_source`, `extra`, `error`, `start_time`, `feedback_group_id`, ' +
      '`comparative_experiment_id`, `created_at`, `modified_at`.',
  },
  schema: { response: { 200: Feedback }, produces: feedbackMediaType },
  handler: async ({ caller, request, services }) => {
    requireJson(request);
    const take = (body: Buffer) => takeFeedback(senderOf(caller), body, feedbackDeps(services));
    return new Answer({ body: await withBody({ request, caller }, services.config, take) });
  },
});
