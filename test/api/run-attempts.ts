import { randomBytes } from 'node:crypto';
import { type Attempt, own } from './attempt.ts';

export interface RunVictim {
  readonly projectId: string;
  readonly runId: string;
}

/** Attempts to read and to share the runs of another workspace, by operation. */
export const runAttempts: Readonly<Record<string, (victim: RunVictim) => Attempt>> = {
  queryV2Runs: ({ projectId }) => ({
    url: '/v2/runs/query',
    payload: { project_ids: [projectId], selects: ['ID', 'NAME', 'INPUTS'] },
  }),
  getV2Run: ({ runId, projectId }) => ({ url: `/v2/runs/${runId}?project_id=${projectId}&selects=NAME` }),
  queryTraces: ({ projectId }) => ({ url: '/v2/traces/query', payload: { project_id: projectId, selects: ['NAME'] } }),
  listTraceRuns: ({ runId, projectId }) => ({ url: `/v2/traces/${runId}/runs?project_id=${projectId}&selects=NAME` }),
  queryThreads: ({ projectId }) => ({ url: '/v2/threads/query', payload: { project_id: projectId } }),
  listThreadTraces: ({ projectId, runId }) => ({
    url: `/v2/threads/${runId}/traces?project_id=${projectId}&selects=NAME`,
  }),
  getThreadStats: ({ projectId, runId }) => ({
    url: `/v2/threads/${runId}/stats?session_id=${projectId}&selects=TURNS`,
  }),
  getRunStats: ({ projectId }) => ({
    url: '/runs/stats',
    payload: { session: [projectId], group_by: { attribute: 'name' } },
    answers: own,
  }),
  groupRuns: ({ projectId }) => ({ url: '/runs/group', payload: { session_id: projectId, group_by: 'conversation' } }),
  getRunGroupStats: ({ projectId }) => ({
    url: '/runs/group/stats',
    payload: { session_id: projectId, group_by: 'conversation' },
  }),
  getThreadsStats: ({ projectId }) => ({
    url: '/v2/threads/stats',
    payload: { project_id: projectId, select: ['THREAD_COUNT'] },
  }),
  getThreadPreview: ({ projectId, runId }) => ({ url: `/runs/threads/${runId}?session_id=${projectId}` }),
  getV2RunUrl: ({ projectId, runId }) => ({ url: `/v2/runs/${runId}/url?project_id=${projectId}&trace_id=${runId}` }),
  getThreadShare: ({ projectId }) => ({ url: `/v2/threads/mine/share?project_id=${projectId}` }),
  createThreadShare: ({ projectId }) => ({ url: '/v2/threads/mine/share', payload: { project_id: projectId } }),
  deleteThreadShare: ({ projectId }) => ({ url: `/v2/threads/mine/share?project_id=${projectId}`, answers: [204] }),
  getRunShare: ({ runId }) => ({ url: `/runs/${runId}/share`, answers: [200, 404] }),
  shareRun: ({ runId }) => ({ url: `/runs/${runId}/share`, answers: [200, 404] }),
  unshareRun: ({ runId }) => ({ url: `/runs/${runId}/share`, answers: own }),
  shareV2Run: ({ runId, projectId }) => ({
    url: `/v2/runs/${runId}/share`,
    payload: { session_id: projectId, trace_id: runId },
  }),
  unshareV2Run: ({ runId, projectId }) => ({
    url: `/v2/runs/${runId}/share`,
    payload: { session_id: projectId },
    answers: [204],
  }),
};

/** Attempts to read and to change the feedback on runs of another workspace, by operation. */
export const feedbackAttempts: Readonly<
  Record<string, (victim: RunVictim & { readonly feedbackId: string }) => Attempt>
> = {
  // Creates feedback in the stranger's own workspace; the following attempts then refer to that feedback.
  createFeedback: ({ runId, feedbackId }) => ({
    url: '/feedback',
    payload: { id: feedbackId, run_id: runId, key: 'stolen', score: 1 },
    answers: own,
  }),
  listFeedback: ({ runId, projectId }) => ({
    url: `/feedback?run=${runId}&session=${projectId}&include_user_names=true`,
    answers: own,
  }),
  getFeedback: ({ feedbackId }) => ({ url: `/feedback/${feedbackId}?include_user_names=true`, answers: [200, 404] }),
  updateFeedback: ({ feedbackId }) => ({
    url: `/feedback/${feedbackId}`,
    payload: { comment: 'stolen' },
    answers: [200, 404],
  }),
  deleteFeedback: ({ feedbackId }) => ({ url: `/feedback/${feedbackId}`, answers: [200, 404] }),
  createFeedbackTokens: ({ runId }) => ({
    url: '/feedback/tokens',
    payload: { run_id: runId, feedback_key: 'mine' },
    answers: own,
  }),
  listFeedbackTokens: ({ runId }) => ({ url: `/feedback/tokens?run_id=${runId}`, answers: own }),
};

/** Returns a span that names the victim's project. */
export function otlp(projectId: string) {
  const span = {
    traceId: randomBytes(16).toString('hex'),
    spanId: randomBytes(8).toString('hex'),
    name: 'stolen',
    startTimeUnixNano: String(Date.now() * 1e6),
    attributes: [{ key: 'langsmith.trace.session_id', value: { stringValue: projectId } }],
  };
  return { resourceSpans: [{ scopeSpans: [{ spans: [span] }] }] };
}
