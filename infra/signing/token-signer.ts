import { createHmac, hkdfSync, timingSafeEqual } from 'node:crypto';

export type OpenedToken =
  | { readonly kind: 'valid'; readonly text: string }
  | { readonly kind: 'expired' }
  | { readonly kind: 'invalid' };

/**
 * Creates and verifies signed, URL-safe tokens. The text of a token is readable, not encrypted; only a holder of the
 * secret key can create one.
 */
export interface TokenSigner {
  /** @param expiresAtSeconds expiry of the token, in seconds since 1970. */
  sign(text: string, expiresAtSeconds: number): string;
  open(token: string, nowSeconds: number): OpenedToken;
}

const keyBytes = 32;

/**
 * Token format: base64url of `<expiry>.<text>`, a dot, base64url of its HMAC-SHA256. HKDF (RFC 5869) derives one key
 * for each purpose, so that a token is valid for one purpose only.
 */
export function createTokenSigner(secretKey: string, purpose: string): TokenSigner {
  const key = Buffer.from(hkdfSync('sha256', secretKey, '', `runlake ${purpose} v1`, keyBytes));
  const computeSignature = (body: string) => createHmac('sha256', key).update(body).digest('base64url');
  return {
    sign(text, expiresAtSeconds) {
      const body = Buffer.from(`${expiresAtSeconds}.${text}`).toString('base64url');
      return `${body}.${computeSignature(body)}`;
    },
    open(token, nowSeconds) {
      const [body = '', signature = '', ...rest] = token.split('.');
      if (rest.length > 0 || !isSame(signature, computeSignature(body))) return { kind: 'invalid' };
      const content = Buffer.from(body, 'base64url').toString('utf8');
      const dot = content.indexOf('.');
      if (Number(content.slice(0, dot)) <= nowSeconds) return { kind: 'expired' };
      return { kind: 'valid', text: content.slice(dot + 1) };
    },
  };
}

/** Compares in constant time. */
function isSame(given: string, expected: string): boolean {
  const a = Buffer.from(given);
  const b = Buffer.from(expected);
  return a.length === b.length && timingSafeEqual(a, b);
}
