import { v5 as uuidv5 } from 'uuid';
import { createTokenSigner, type TokenSigner } from '../../infra/signing/token-signer.ts';

/** The permission that a token grants: to submit one feedback entry with one key on one run. */
export interface FeedbackGrant {
  readonly workspaceId: string;
  /** User for whom the feedback is stored. */
  readonly userId: string;
  readonly runId: string;
  readonly key: string;
}

export type OpenedFeedbackToken =
  | { readonly kind: 'valid'; readonly grant: FeedbackGrant }
  | { readonly kind: 'expired' }
  | { readonly kind: 'invalid' };

/** Creates the signer for {@link createFeedbackToken}. `secretKey` must be the same in all processes. */
export function createFeedbackSigner(secretKey: string): TokenSigner {
  return createTokenSigner(secretKey, 'feedback');
}

/**
 * Creates a feedback token. The same grant and time always yield the same token.
 *
 * @param expiresAtSeconds Expiry time in seconds since 1970.
 */
export function createFeedbackToken(signer: TokenSigner, grant: FeedbackGrant, expiresAtSeconds: number): string {
  const { workspaceId, userId, runId, key } = grant;
  return signer.sign(JSON.stringify([workspaceId, userId, runId, key]), expiresAtSeconds);
}

export function openFeedbackToken(signer: TokenSigner, token: string): OpenedFeedbackToken {
  const opened = signer.open(token, Math.floor(Date.now() / 1_000));
  if (opened.kind !== 'valid') return opened;
  const [workspaceId, userId, runId, key] = JSON.parse(opened.text) as [string, string, string, string];
  return { kind: 'valid', grant: { workspaceId, userId, runId, key } };
}

/**
 * Derives the id of the feedback entry that a grant permits. The id is the same for every submission, so that each
 * submission replaces the previous one.
 */
export function deriveFeedbackId({ workspaceId, runId, key }: FeedbackGrant): string {
  // Pass the name as bytes, because the package throws for text with a lone surrogate.
  return uuidv5(Buffer.from(`${workspaceId}:${runId}:${key}`), grantNamespace);
}

const grantNamespace = 'c64b6a1e-6c0c-4f0d-9a0e-3f0c3c1b7a52';
