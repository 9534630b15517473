import { randomUUID } from 'node:crypto';
import { type Attempt, own } from './attempt.ts';

export interface QueueVictim {
  readonly queueId: string;
  readonly queueRunId: string;
  readonly runId: string;
  readonly projectId: string;
  readonly userId: string;
}

/** Attempts to use the annotation queues of another workspace, by operation. */
export const queueAttempts: Readonly<Record<string, (victim: QueueVictim) => Attempt>> = {
  listAnnotationQueues: ({ queueId }) => ({ url: `/annotation-queues?ids=${queueId}`, answers: own }),
  createAnnotationQueue: ({ queueId }) => ({
    url: '/annotation-queues',
    payload: { id: queueId, name: `mine ${randomUUID()}` },
    answers: [409],
  }),
  getAnnotationQueue: ({ queueId }) => ({ url: `/annotation-queues/${queueId}` }),
  updateAnnotationQueue: ({ queueId }) => ({ url: `/annotation-queues/${queueId}`, payload: { name: 'stolen' } }),
  deleteAnnotationQueue: ({ queueId }) => ({ url: `/annotation-queues/${queueId}` }),
  listRunAnnotationQueues: ({ runId }) => ({ url: `/annotation-queues/${runId}/queues`, answers: own }),
  listAnnotationQueueRuns: ({ queueId }) => ({ url: `/annotation-queues/${queueId}/runs` }),
  addAnnotationQueueRuns: ({ queueId, runId }) => ({ url: `/annotation-queues/${queueId}/runs`, payload: [runId] }),
  addAnnotationQueueRunsByKey: ({ queueId, runId, projectId }) => ({
    url: `/annotation-queues/${queueId}/runs/by-key`,
    payload: [{ run_id: runId, session_id: projectId, start_time: '2026-01-01T00:00:00Z' }],
  }),
  getAnnotationQueueRun: ({ queueId }) => ({ url: `/annotation-queues/${queueId}/run/0` }),
  getAnnotationQueueSize: ({ queueId }) => ({ url: `/annotation-queues/${queueId}/size` }),
  getAnnotationQueueTotalSize: ({ queueId }) => ({ url: `/annotation-queues/${queueId}/total_size` }),
  getAnnotationQueueTotalArchived: ({ queueId }) => ({ url: `/annotation-queues/${queueId}/total_archived` }),
  updateAnnotationQueueRun: ({ queueId, queueRunId }) => ({
    url: `/annotation-queues/${queueId}/runs/${queueRunId}`,
    payload: { added_at: '2026-01-01T00:00:00Z' },
  }),
  deleteAnnotationQueueRun: ({ queueId, queueRunId }) => ({ url: `/annotation-queues/${queueId}/runs/${queueRunId}` }),
  deleteAnnotationQueueRuns: ({ queueId }) => ({
    url: `/annotation-queues/${queueId}/runs/delete`,
    payload: { delete_all: true },
  }),
  createAnnotationQueueItems: ({ queueId, runId }) => ({
    url: `/v1/platform/annotation-queues/${queueId}/items`,
    payload: { items: [{ run_id: runId }] },
  }),
  listAnnotationQueueItems: ({ queueId }) => ({
    url: `/v1/platform/annotation-queues/${queueId}/items?status=needs_my_review`,
  }),
  countAnnotationQueueItems: ({ queueId }) => ({
    url: `/v1/platform/annotation-queues/${queueId}/items/count?status=all`,
  }),
  getAnnotationQueueItemPlacement: ({ queueId, queueRunId }) => ({
    url: `/v1/platform/annotation-queues/${queueId}/items/${queueRunId}/placement`,
  }),
  updateAnnotationQueueItem: ({ queueId, queueRunId }) => ({
    url: `/v1/platform/annotation-queues/${queueId}/items/${queueRunId}`,
    payload: { added_at: '2026-01-01T00:00:00Z' },
  }),
  deleteAnnotationQueueItems: ({ queueId, queueRunId }) => ({
    url: `/v1/platform/annotation-queues/${queueId}/items/delete`,
    payload: { item_ids: [queueRunId] },
  }),
  setAnnotationQueueItemStatus: ({ queueRunId }) => ({
    url: `/v1/platform/annotation-queues/items/${queueRunId}/status`,
    payload: { status: 'completed' },
  }),
  addAnnotationQueueReviewer: ({ queueId, userId }) => ({
    url: `/v1/platform/annotation-queues/${queueId}/reviewers`,
    payload: { identity_id: userId },
  }),
  removeAnnotationQueueReviewer: ({ queueId, userId }) => ({
    url: `/v1/platform/annotation-queues/${queueId}/reviewers/${userId}`,
  }),
  exportAnnotationQueue: ({ queueId }) => ({ url: `/annotation-queues/${queueId}/export`, payload: {} }),
  populateAnnotationQueue: ({ queueId, projectId }) => ({
    url: '/annotation-queues/populate',
    payload: { queue_id: queueId, session_ids: [projectId] },
  }),
  resolveAnnotationQueueRun: ({ queueId, queueRunId }) => ({
    url: `/annotation-queues/${queueId}/runs/resolve/${queueRunId}`,
  }),
  deleteAnnotationQueues: ({ queueId }) => ({ url: `/annotation-queues?queue_ids=${queueId}`, answers: [207] }),
  setAnnotationQueueRunStatus: ({ queueRunId }) => ({
    url: `/annotation-queues/status/${queueRunId}`,
    payload: { status: 'completed' },
  }),
};

/** Feedback configs have no ids: the stranger's attempts affect its own workspace. */
const config = { feedback_key: 'victims', feedback_config: { type: 'freeform' } };

const price = { name: 'mine', match_pattern: '^mine$', prompt_cost: '0.1', completion_cost: '0.2' };

/** Attempts to use the feedback configs, evaluators and model prices of another workspace, by operation. */
export const evaluatorAttempts: Readonly<
  Record<string, (victim: { readonly evaluatorId: string; readonly priceId: string }) => Attempt>
> = {
  listModelPrices: () => ({ url: '/model-price-map', answers: own }),
  createModelPrice: () => ({ url: '/model-price-map', payload: price, answers: own }),
  updateModelPrice: ({ priceId }) => ({ url: `/model-price-map/${priceId}`, payload: price }),
  deleteModelPrice: ({ priceId }) => ({ url: `/model-price-map/${priceId}` }),
  listFeedbackConfigs: () => ({ url: '/feedback-configs?key=victims', answers: own }),
  createFeedbackConfig: () => ({ url: '/feedback-configs', payload: config, answers: own }),
  updateFeedbackConfig: () => ({
    url: '/feedback-configs',
    payload: { feedback_key: 'victims', is_enforced: true },
    answers: [200, 404],
  }),
  deleteFeedbackConfig: () => ({ url: '/feedback-configs?feedback_key=victims', answers: [204, 404] }),
  listEvaluators: () => ({ url: '/v1/platform/evaluators', answers: own }),
  createEvaluator: () => ({
    url: '/v1/platform/evaluators',
    payload: { name: 'mine', type: 'code', code_evaluator: {} },
    answers: [201],
  }),
  getEvaluator: ({ evaluatorId }) => ({ url: `/v1/platform/evaluators/${evaluatorId}` }),
  updateEvaluator: ({ evaluatorId }) => ({
    url: `/v1/platform/evaluators/${evaluatorId}`,
    payload: { name: 'stolen' },
  }),
  deleteEvaluator: ({ evaluatorId }) => ({ url: `/v1/platform/evaluators/${evaluatorId}` }),
  deleteEvaluators: ({ evaluatorId }) => ({
    url: `/v1/platform/evaluators?evaluator_ids=${evaluatorId}`,
    answers: own,
  }),
};
