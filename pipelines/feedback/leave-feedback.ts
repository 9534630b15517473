import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { requireMatchingValues } from './feedback-config.ts';
import { deriveFeedbackId, type FeedbackGrant, openLink } from './feedback-links.ts';
import { createFeedback, type FeedbackDeps } from './write-feedback.ts';

/** Content of a feedback entry that is submitted with a token. */
export interface SubmittedFeedback {
  readonly score?: number | boolean | null | undefined;
  readonly value?: unknown;
  readonly comment?: string | null | undefined;
  readonly correction?: unknown;
  readonly metadata?: Readonly<Record<string, unknown>> | null | undefined;
}

/**
 * Stores the feedback entry that the token of a link permits, without an API key. Resolves when the entry is durable. A further
 * submission replaces the entry.
 *
 * @throws NOT_FOUND if the token is invalid or the workspace is deleted, LINK_EXPIRED, INVALID_FEEDBACK if there is no
 *   content, or if it does not match the config of the link; the errors of {@link createFeedback}.
 */
export async function leaveFeedback(
  deps: FeedbackDeps,
  token: string,
  { score, value, comment, correction, metadata }: SubmittedFeedback,
): Promise<FeedbackGrant> {
  const grant = await openLink(deps, token);
  // Link previews also open links, but without content.
  if ([score, value, comment, correction].every((content) => content === undefined || content === null)) {
    throw runlakeError('INVALID_FEEDBACK', {
      feedback: 'of the link',
      reason: 'must have score, value, comment or correction',
    });
  }
  const { workspaceId, userId, runId, key, config } = grant;
  if (config) requireMatchingValues(config, { feedback: 'of the link', score: score ?? undefined, value });
  const feedback = {
    ...{ id: deriveFeedbackId(grant), run_id: runId, key, score, value, comment, correction },
    feedback_source: { type: 'api', metadata: metadata ?? {} },
  };
  await createFeedback({ workspaceId, userId }, Buffer.from(JSON.stringify(feedback)), deps);
  return grant;
}
