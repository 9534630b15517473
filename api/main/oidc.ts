/** Sign-in through OpenID Connect. The browser is redirected to the provider, which redirects it back with a code. */
import type { FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import { isRunlakeError, runlakeError } from '../../infra/errors/runlake-error.ts';
import { runAsActor } from '../../infra/postgres/actor.ts';
import { toActor } from '../../pipelines/tenants/caller.ts';
import type { PendingSignIn } from '../../pipelines/tenants/oidc.ts';
import { findMemberKey } from '../../pipelines/tenants/roles.ts';
import { startSession } from '../../pipelines/tenants/sign-in-session.ts';
import { defineOperation, RawResponse } from '../server/operation.ts';
import { buildPublicUrl } from '../server/public-base.ts';
import type { Services } from '../server/services.ts';
import { buildPendingCookie, buildSessionCookie, pendingCookieName, readCookie } from '../server/session-cookie.ts';

/** Context to which the cookie is sealed. */
const cookieRow = 'oidc sign-in';

const startOidcSignIn = defineOperation({
  operationId: 'startOidcSignIn',
  method: 'GET',
  path: '/session/oidc',
  summary: 'Sign in through OpenID Connect',
  description:
    'Redirects to the provider, which redirects to `/session/oidc/callback`; after a failure to `/signin?error=CODE`.',
  access: { public: true, tenantScope: 'none' },
  errors: ['OIDC_NOT_CONFIGURED'],
  schema: { response: { 302: Type.Null() } },
  handler: async ({ services, request }) => {
    if (services.oidc === undefined) throw runlakeError('OIDC_NOT_CONFIGURED');
    const redirectUri = buildPublicUrl('/session/oidc/callback', request, services.config);
    try {
      const { url, pending } = await services.oidc.start(redirectUri);
      const sealed = services.secretSealer.seal(JSON.stringify(pending), cookieRow);
      return redirect(url, [buildPendingCookie(sealed, request, services.config)]);
    } catch (error) {
      return redirectToReason(error, request, []);
    }
  },
});

const finishOidcSignIn = defineOperation({
  operationId: 'finishOidcSignIn',
  method: 'GET',
  path: '/session/oidc/callback',
  summary: 'End of the sign-in through OpenID Connect',
  description: 'Starts a session and redirects to `/`; after a failure to `/signin?error=CODE`.',
  access: { public: true, tenantScope: 'none' },
  errors: ['OIDC_NOT_CONFIGURED'],
  schema: { response: { 302: Type.Null() } },
  handler: async ({ services, request }) => {
    const { config } = services;
    if (services.oidc === undefined) throw runlakeError('OIDC_NOT_CONFIGURED');
    const forgotten = buildPendingCookie(undefined, request, config);
    try {
      const token = await signInMember(services, services.oidc, request);
      return redirect('/', [forgotten, buildSessionCookie(token, request, config)]);
    } catch (error) {
      return redirectToReason(error, request, [forgotten]);
    }
  },
});

/** Leads a browser to the sign-in page, which says why it could not sign in. */
function redirectToReason(error: unknown, request: FastifyRequest, cookies: string[]): RawResponse {
  if (!isRunlakeError(error)) throw error;
  request.log.warn({ err: error, requestId: request.id }, 'sign-in through OpenID Connect failed');
  return redirect(`/signin?error=${error.code}`, cookies);
}

/** @returns the value of the session cookie. */
async function signInMember(
  { database, authenticator, rateLimiter, secretSealer, config }: Services,
  oidc: NonNullable<Services['oidc']>,
  request: FastifyRequest,
): Promise<string> {
  const sealed = readCookie(request.headers, pendingCookieName);
  if (sealed === undefined) throw runlakeError('OIDC_SIGN_IN_EXPIRED');
  const pending = JSON.parse(secretSealer.open(sealed, cookieRow).text) as PendingSignIn;
  const { ip } = request;
  const answer = new URL(request.originalUrl, pending.redirectUri).searchParams;
  // Has a limit of its own: while the provider is down, operators sign in with a key.
  const member = await rateLimiter.limitSignIn(`oidc ${ip}`, () => oidc.finish(answer, pending), isProviderFailure);
  const key = await findMemberKey({ database, authenticator }, member, { ip, limits: config });
  return runAsActor(toActor({ ...key, session: true }, ip), () => startSession(database, key.keyId));
}

/**
 * A client can repeat the request with any code, and each code is sent to the provider, which may block Runlake, or limits
 * its requests already.
 */
const isProviderFailure = (error: unknown) =>
  isRunlakeError(error) && (error.code === 'OAUTH_PROVIDER_REFUSED' || error.code === 'OAUTH_PROVIDER_UNAVAILABLE');

function redirect(location: string, cookies: string[]): RawResponse {
  return new RawResponse({
    status: 302,
    headers: { location, 'set-cookie': cookies, 'cache-control': 'no-store', 'referrer-policy': 'no-referrer' },
  });
}

export const oidcOperations = [startOidcSignIn, finishOidcSignIn];
