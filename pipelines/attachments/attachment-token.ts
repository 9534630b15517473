import type { OpenedToken, TokenSigner } from '../../infra/signing/token-signer.ts';

/** What a link is for. */
export interface AttachmentKey {
  readonly tenantId: string;
  readonly runId: string;
  readonly name: string;
}

/** How long a link works, from the answer that holds it. */
const linkSeconds = 3_600;

/** A token that lets whoever holds it read that one attachment for an hour. */
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
  // Only we sign, so the text is what we wrote.
  const [tenantId, runId, name] = JSON.parse(opened.text) as [string, string, string];
  return { kind: 'valid', key: { tenantId, runId, name } };
}
