import { fault } from '../../infra/errors/runlake-error.ts';
import type { TokenSigner } from '../../infra/signing/token-signer.ts';
import { isLiveWorkspace } from '../tenants/read-workspace.ts';
import { createFeedback } from './create-feedback.ts';
import { type FeedbackGrant, grantedFeedbackId, openFeedbackToken } from './feedback-token.ts';
import type { FeedbackPorts } from './ports.ts';

/** What the holder of a token may say. */
export interface LeftFeedback {
  readonly score?: number | boolean | null | undefined;
  readonly value?: unknown;
  readonly comment?: string | null | undefined;
  readonly correction?: unknown;
  readonly metadata?: Readonly<Record<string, unknown>> | null | undefined;
}

/**
 * Takes the feedback that a token is for, without a key of the API, once it is durable. Sent again, it replaces what was there.
 *
 * @throws NOT_FOUND where nobody here made the token or the workspace is deleted, LINK_EXPIRED, INVALID_FEEDBACK where nothing is said; what {@link createFeedback} throws.
 */
export async function leaveFeedback(
  ports: FeedbackPorts & { readonly signer: TokenSigner },
  token: string,
  { score, value, comment, correction, metadata }: LeftFeedback,
): Promise<FeedbackGrant> {
  const opened = openFeedbackToken(ports.signer, token);
  if (opened.kind === 'expired') throw fault('LINK_EXPIRED');
  if (opened.kind === 'invalid') throw fault('NOT_FOUND', { what: 'Link' });
  // Links are opened by more than people, such as for previews.
  if ([score, value, comment, correction].every((said) => said === undefined || said === null)) {
    throw fault('INVALID_FEEDBACK', { feedback: 'the link', reason: 'needs score, value, comment or correction' });
  }
  const { grant } = opened;
  const { workspaceId, userId, runId, key } = grant;
  if (!(await isLiveWorkspace(ports.database, workspaceId))) throw fault('NOT_FOUND', { what: 'Link' });
  const feedback = {
    ...{ id: grantedFeedbackId(grant), run_id: runId, key, score, value, comment, correction },
    feedback_source: { type: 'api', metadata: metadata ?? {} },
  };
  await createFeedback({ workspaceId, userId }, Buffer.from(JSON.stringify(feedback)), ports);
  return grant;
}
