import type { OpenedToken, TokenSigner } from '../../infra/signing/token-signer.ts';

/** The attachment that a link gives access to. */
export interface AttachmentKey {
  readonly tenantId: string;
  readonly runId: string;
  readonly name: string;
}

/** Lifetime of a link, from the response that contains it. */
const linkSeconds = 3_600;

/** Signs a token that allows reading this one attachment for an hour. */
export function signAttachmentToken(signer: TokenSigner, { tenantId, runId, name }: AttachmentKey): string {
  const nowSeconds = Math.floor(Date.now() / 1_000);
  return signer.sign(JSON.stringify([tenantId, runId, name]), nowSeconds + linkSeconds);
}

export type OpenedAttachmentToken =
  | { readonly kind: 'valid'; readonly key: AttachmentKey }
  | Exclude<OpenedToken, { kind: 'valid' }>;

export function openAttachmentToken(signer: TokenSigner, token: string): OpenedAttachmentToken {
  const opened = signer.open(token, Math.floor(Date.now() / 1_000));
  if (opened.kind !== 'valid') return opened;
  // The signature proves that this server wrote the text.
  const [tenantId, runId, name] = JSON.parse(opened.text) as [string, string, string];
  return { kind: 'valid', key: { tenantId, runId, name } };
}
