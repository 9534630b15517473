import { createHmac, hkdfSync, timingSafeEqual } from 'node:crypto';

/** What a token turned out to be. */
export type OpenedToken =
  | { readonly kind: 'valid'; readonly text: string }
  | { readonly kind: 'expired' }
  | { readonly kind: 'invalid' };

/**
 * Signs short texts into tokens that may travel in URLs and opens them again. The text can be read by whoever holds the token;
 * only the holder of the secret key can make one.
 */
export interface TokenSigner {
  /** @param expiresAtSeconds Since 1970; from then on the token opens as expired. */
  sign(text: string, expiresAtSeconds: number): string;
  open(token: string, nowSeconds: number): OpenedToken;
}

const keyBytes = 32;

/**
 * Token: base64url of `<expiry>.<text>`, a dot, base64url of its HMAC-SHA256. The key is derived by HKDF (RFC 5869), one for
 * each purpose, so that a token made for one is worth nothing for another.
 */
export function createTokenSigner(secretKey: string, purpose: string): TokenSigner {
  const key = Buffer.from(hkdfSync('sha256', secretKey, '', `runlake ${purpose} v1`, keyBytes));
  const signatureOf = (body: string) => createHmac('sha256', key).update(body).digest('base64url');
  return {
    sign(text, expiresAtSeconds) {
      const body = Buffer.from(`${expiresAtSeconds}.${text}`).toString('base64url');
      return `${body}.${signatureOf(body)}`;
    },
    open(token, nowSeconds) {
      const [body = '', signature = '', ...rest] = token.split('.');
      if (rest.length > 0 || !isSame(signature, signatureOf(body))) return { kind: 'invalid' };
      const content = Buffer.from(body, 'base64url').toString('utf8');
      const dot = content.indexOf('.');
      if (Number(content.slice(0, dot)) <= nowSeconds) return { kind: 'expired' };
      return { kind: 'valid', text: content.slice(dot + 1) };
    },
  };
}

/** Takes as long wherever the first difference lies. */
function isSame(given: string, expected: string): boolean {
  const a = Buffer.from(given);
  const b = Buffer.from(expected);
  return a.length === b.length && timingSafeEqual(a, b);
}
