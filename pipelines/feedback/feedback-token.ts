import { v5 as uuidv5 } from 'uuid';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { createTokenSigner, type TokenSigner } from '../../infra/signing/token-signer.ts';
import { isLiveWorkspace } from '../tenants/workspaces.ts';
import type { FeedbackDeps } from './feedback-event.ts';
import { createFeedback } from './write-feedback.ts';

/** What a token permits: one feedback, with one key, on one run. */
interface FeedbackGrant {
  readonly workspaceId: string;
  /** User that the feedback is stored for. */
  readonly userId: string;
  readonly runId: string;
  readonly key: string;
}

type OpenedFeedbackToken =
  | { readonly kind: 'valid'; readonly grant: FeedbackGrant }
  | { readonly kind: 'expired' }
  | { readonly kind: 'invalid' };

/** Signer for {@link feedbackToken}. `secretKey` must be equal in all processes. */
export function feedbackSigner(secretKey: string): TokenSigner {
  return createTokenSigner(secretKey, 'feedback');
}

/** @param expiresAtSeconds Since 1970. The same grant and time give the same token. */
export function feedbackToken(signer: TokenSigner, grant: FeedbackGrant, expiresAtSeconds: number): string {
  const { workspaceId, userId, runId, key } = grant;
  return signer.sign(JSON.stringify([workspaceId, userId, runId, key]), expiresAtSeconds);
}

function openFeedbackToken(signer: TokenSigner, token: string): OpenedFeedbackToken {
  const opened = signer.open(token, Math.floor(Date.now() / 1_000));
  if (opened.kind !== 'valid') return opened;
  const [workspaceId, userId, runId, key] = JSON.parse(opened.text) as [string, string, string, string];
  return { kind: 'valid', grant: { workspaceId, userId, runId, key } };
}

/** The id of the feedback of a grant. It is the same for every submission, so that they all replace one feedback. */
function grantedFeedbackId({ workspaceId, runId, key }: FeedbackGrant): string {
  // Bytes, because the package throws for the text of a lone surrogate.
  return uuidv5(Buffer.from(`${workspaceId}:${runId}:${key}`), grantNamespace);
}

const grantNamespace = 'c64b6a1e-6c0c-4f0d-9a0e-3f0c3c1b7a52';

/** Content of a feedback that is submitted with a token. */
export interface LeftFeedback {
  readonly score?: number | boolean | null | undefined;
  readonly value?: unknown;
  readonly comment?: string | null | undefined;
  readonly correction?: unknown;
  readonly metadata?: Readonly<Record<string, unknown>> | null | undefined;
}

/**
 * Stores the feedback that a token permits, without an API key; resolves once it is durable. Submitting again replaces
 * the feedback.
 *
 * @throws NOT_FOUND if the token is invalid or the workspace is deleted, LINK_EXPIRED, INVALID_FEEDBACK if there is no
 *   content; the errors of {@link createFeedback}.
 */
export async function leaveFeedback(
  deps: FeedbackDeps & { readonly signer: TokenSigner },
  token: string,
  { score, value, comment, correction, metadata }: LeftFeedback,
): Promise<FeedbackGrant> {
  const opened = openFeedbackToken(deps.signer, token);
  if (opened.kind === 'expired') throw runlakeError('LINK_EXPIRED');
  if (opened.kind === 'invalid') throw runlakeError('NOT_FOUND', { what: 'Link' });
  // Link previews open links too; they send no content.
  if ([score, value, comment, correction].every((content) => content === undefined || content === null)) {
    throw runlakeError('INVALID_FEEDBACK', {
      feedback: 'the link',
      reason: 'must have score, value, comment or correction',
    });
  }
  const { grant } = opened;
  const { workspaceId, userId, runId, key } = grant;
  if (!(await isLiveWorkspace(deps.database, workspaceId))) throw runlakeError('NOT_FOUND', { what: 'Link' });
  const feedback = {
    ...{ id: grantedFeedbackId(grant), run_id: runId, key, score, value, comment, correction },
    feedback_source: { type: 'api', metadata: metadata ?? {} },
  };
  await createFeedback({ workspaceId, userId }, Buffer.from(JSON.stringify(feedback)), deps);
  return grant;
}
