import { timingSafeEqual } from 'node:crypto';
import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import type { FastifyRequest } from 'fastify';
import type { Config } from '../../infra/config/settings.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { SignInSession } from '../../pipelines/tenants/caller.ts';
import { sessionLifetimeSeconds } from '../../pipelines/tenants/sign-in-session.ts';

/** Name of the cookie at the default ports. At others, `_` and the port follow. */
export const sessionCookieName = 'runlake_session';
/** Cookie with the state of a sign-in while the browser is at the OpenID Connect provider. */
export const pendingCookieName = 'runlake_oidc';
const pendingSeconds = 600;
const ownName = `(?:${sessionCookieName}(?:_\\d+)?|${pendingCookieName})`;
const ownCookie = new RegExp(`^\\s*${ownName}=`);
const ownPair = new RegExp(`^=?\\s*${ownName}\\s*=`);

export function readSessionCookie(headers: IncomingHttpHeaders): string | undefined {
  return readCookie(headers, nameSessionCookie(headers));
}

/**
 * Returns the name of the session cookie at the address of a request. Browsers send a cookie to all ports of a host, so
 * several installations on one host would end each other's sessions if its name was the same.
 */
function nameSessionCookie({ host = '' }: IncomingHttpHeaders): string {
  const port = /:(\d{1,5})$/.exec(host)?.[1];
  return port === undefined || port === '80' || port === '443' ? sessionCookieName : `${sessionCookieName}_${port}`;
}

/** Returns the value of a cookie of this module. An empty value counts as absent. */
export function readCookie({ cookie }: IncomingHttpHeaders, name: string): string | undefined {
  return new RegExp(`(?:^|;)\\s*${name}=([^;\\s]*)`).exec(cookie ?? '')?.[1] || undefined;
}

/**
 * Removes the cookies of this module from a request. Browsers send them to all ports of the host, also to servers whose
 * custom code reads cookies.
 */
export function dropOwnCookies({ headers, rawHeaders }: Pick<IncomingMessage, 'headers' | 'rawHeaders'>): void {
  if (headers.cookie === undefined) return;
  const kept = removeOwnCookies(headers.cookie);
  if (kept === undefined) delete headers.cookie;
  else headers.cookie = kept;
  for (let index = rawHeaders.length - 2; index >= 0; index -= 2) {
    if (rawHeaders[index]?.toLowerCase() !== 'cookie') continue;
    const value = removeOwnCookies(rawHeaders[index + 1] ?? '');
    if (value === undefined) rawHeaders.splice(index, 2);
    else rawHeaders[index + 1] = value;
  }
}

/** Whether a browser that gets this header `Set-Cookie` sends a cookie of this module. It may be a value without a name. */
export function setsOwnCookie(header: string): boolean {
  return ownPair.test(header.trimStart());
}

/** Returns a cookie header without the cookies of this module, or undefined if nothing is left. */
export function removeOwnCookies(cookie: string): string | undefined {
  const kept = cookie.split(';').filter((each) => !ownCookie.test(each));
  return kept.join(';').trim() || undefined;
}

/** Builds the header `Set-Cookie` of a session. @param token Value of the cookie; undefined removes the cookie. */
export function buildSessionCookie(
  token: string | undefined,
  request: FastifyRequest,
  config: Pick<Config, 'publicUrl'>,
): string {
  const cookie = {
    name: nameSessionCookie(request.headers),
    sameSite: 'Strict',
    maxAgeSeconds: sessionLifetimeSeconds,
  };
  return buildCookie(cookie, token, isReachedByTls(request, config));
}

/** Like {@link buildSessionCookie}. The provider's page opens the callback, so `SameSite` must not be `Strict`. */
export function buildPendingCookie(
  sealed: string | undefined,
  request: FastifyRequest,
  config: Pick<Config, 'publicUrl'>,
): string {
  const cookie = { name: pendingCookieName, sameSite: 'Lax', maxAgeSeconds: pendingSeconds };
  return buildCookie(cookie, sealed, isReachedByTls(request, config));
}

function buildCookie(
  {
    name,
    sameSite,
    maxAgeSeconds,
  }: { readonly name: string; readonly sameSite: string; readonly maxAgeSeconds: number },
  value: string | undefined,
  isSecure: boolean,
): string {
  const age = value === undefined ? 0 : maxAgeSeconds;
  const fields = [`${name}=${value ?? ''}`, 'Path=/', 'HttpOnly', `SameSite=${sameSite}`, `Max-Age=${age}`];
  return [...fields, ...(isSecure ? ['Secure'] : [])].join('; ');
}

function isReachedByTls(request: FastifyRequest, { publicUrl }: Pick<Config, 'publicUrl'>): boolean {
  return publicUrl === undefined ? request.protocol === 'https' : publicUrl.startsWith('https:');
}

/**
 * Checks that a request which changes something comes from the application: pages of other origins cannot read the
 * token of the session.
 *
 * @throws CSRF_TOKEN_REQUIRED
 */
export function requireCsrfToken({ method, headers }: FastifyRequest, session: SignInSession): void {
  if (method !== 'GET' && method !== 'HEAD') checkCsrfToken(headers, session);
}

/** Like {@link requireCsrfToken}, for requests of any method. @throws CSRF_TOKEN_REQUIRED */
export function checkCsrfToken(headers: IncomingHttpHeaders, { csrfToken }: SignInSession): void {
  const given = Buffer.from(String(headers['x-csrf-token'] ?? ''));
  const expected = Buffer.from(csrfToken);
  if (given.length !== expected.length || !timingSafeEqual(given, expected)) throw runlakeError('CSRF_TOKEN_REQUIRED');
}
