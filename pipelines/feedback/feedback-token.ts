import { v5 as uuidv5 } from 'uuid';
import { createTokenSigner, type TokenSigner } from '../../infra/signing/token-signer.ts';

/** What a token permits: one feedback entry, with one key, on one run. */
export interface FeedbackGrant {
  readonly workspaceId: string;
  /** User that the feedback is stored for. */
  readonly userId: string;
  readonly runId: string;
  readonly key: string;
}

export type OpenedFeedbackToken =
  | { readonly kind: 'valid'; readonly grant: FeedbackGrant }
  | { readonly kind: 'expired' }
  | { readonly kind: 'invalid' };

/** Signer for {@link createFeedbackToken}. `secretKey` must be equal in all processes. */
export function createFeedbackSigner(secretKey: string): TokenSigner {
  return createTokenSigner(secretKey, 'feedback');
}

/** @param expiresAtSeconds Seconds since 1970. The same grant and time give the same token. */
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
 * Id of the feedback entry that a grant permits. It is the same for every submission, so that each submission replaces
 * the previous one.
 */
export function deriveFeedbackId({ workspaceId, runId, key }: FeedbackGrant): string {
  // The name is passed as bytes, because the package throws for text with a lone surrogate.
  return uuidv5(Buffer.from(`${workspaceId}:${runId}:${key}`), grantNamespace);
}

const grantNamespace = 'c64b6a1e-6c0c-4f0d-9a0e-3f0c3c1b7a52';
