/** Sign-in of the web application: an API key or a link is exchanged for a session, whose value is only in a cookie. */
import type { FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import { isRunlakeError, type RunlakeError, runlakeError } from '../../infra/errors/runlake-error.ts';
import { runAsActor } from '../../infra/postgres/actor.ts';
import { type Caller, type SignInSession, toActor } from '../../pipelines/tenants/caller.ts';
import type { SignInKey } from '../../pipelines/tenants/sign-in-links.ts';
import {
  endSession,
  findSessionEnd,
  readSessionNames,
  rotateToken,
  startSession,
} from '../../pipelines/tenants/sign-in-session.ts';
import { nullable, Timestamp, Uuid } from '../server/formats.ts';
import { defineOperation, RawResponse } from '../server/operation.ts';
import { releaseVersion } from '../server/release.ts';
import type { Services } from '../server/services.ts';
import { buildSessionCookie, readSessionCookie } from '../server/session-cookie.ts';

const Named = Type.Object({ id: Uuid(), display_name: Type.String() });

const Session = Type.Object({
  workspace: nullable(Named, {
    description:
      'Workspace of requests without `X-Tenant-Id`; otherwise the oldest of those that the key has access to, which requests must name.',
  }),
  organization: Named,
  user: nullable(Type.Object({ id: Uuid(), email: Type.String(), full_name: nullable(Type.String()) })),
  permissions: Type.Array(Type.String()),
  csrf_token: Type.String({ description: 'Value of `X-CSRF-Token` for requests other than GET and HEAD.' }),
  expires_at: Timestamp({ description: 'The end of the session if it is not used until then.' }),
  application: Type.Object({
    version: Type.String(),
    oidc: Type.Boolean({ description: 'Whether members can sign in through OpenID Connect.' }),
    public_prompts: Type.Boolean({ description: 'Whether workspaces can read the public prompts of others.' }),
  }),
});

type SessionCaller = Caller & { readonly session: SignInSession };

async function describeSession({ database, oidc, config }: Services, caller: SessionCaller) {
  return {
    ...(await readSessionNames(database, caller)),
    permissions: [...caller.permissions],
    csrf_token: caller.session.csrfToken,
    expires_at: findSessionEnd(caller.session),
    application: { version: releaseVersion, oidc: oidc !== undefined, public_prompts: config.sharePublicPrompts },
  };
}

/** @throws SESSION_REQUIRED */
function requireSession(caller: Caller): asserts caller is SessionCaller {
  if (caller.session === undefined) throw runlakeError('SESSION_REQUIRED');
}

/** Starts a session of a key and responds with it. */
async function signIn(key: SignInKey, services: Services, request: FastifyRequest) {
  const actor = toActor({ ...key, session: true }, request.ip);
  const token = await runAsActor(actor, () => startSession(services.database, key.keyId));
  const caller = await services.authenticator.authenticate({ session: token });
  requireSession(caller);
  return new RawResponse({
    status: 201,
    headers: { 'set-cookie': buildSessionCookie(token, request, services.config), 'cache-control': 'no-store' },
    body: await describeSession(services, caller),
  });
}

const isRefusal = (error: unknown): error is RunlakeError => isRunlakeError(error) && error.status === 401;

const signInErrors = [
  'SESSION_INVALID',
  'SIGN_IN_LIMITED',
  'DATABASE_UNAVAILABLE',
  'DATABASE_QUERY_FAILED',
  'ACCESS_DENIED_BY_STORE',
] as const;

const signInWithKey = defineOperation({
  operationId: 'signIn',
  method: 'POST',
  path: '/session',
  summary: 'Start a session of an API key',
  description:
    'For the web application. The response sets a cookie, which all operations accept in place of the key. The session has the permissions of the key at each request and ends with it.',
  access: { public: true, tenantScope: 'none' },
  errors: ['API_KEY_INVALID', 'WORKSPACE_FORBIDDEN', 'RATE_LIMITED', ...signInErrors],
  schema: {
    body: Type.Object({ api_key: Type.String({ minLength: 1, maxLength: 512 }) }),
    response: { 201: Session },
  },
  handler: async ({ body, services, request }) => {
    const key = await services.rateLimiter.limitSignIn(
      request.ip,
      () => services.authenticator.authenticate({ key: body.api_key.trim() }),
      isRefusal,
    );
    await services.rateLimiter.take(key);
    return signIn(key, services, request);
  },
});

const signInOnce = defineOperation({
  operationId: 'signInOnce',
  method: 'POST',
  path: '/session/once',
  summary: 'Start a session with the link that Runlake prints at its start',
  description: 'The token works once, and until the process that printed it ends.',
  access: { public: true, tenantScope: 'none' },
  errors: ['SIGN_IN_LINK_INVALID', ...signInErrors],
  schema: {
    body: Type.Object({ token: Type.String({ minLength: 1, maxLength: 512 }) }),
    response: { 201: Session },
  },
  handler: async ({ body, services, request }) => {
    const redeem = async () => {
      const found = services.signInLinks.redeem(body.token);
      if (found === undefined) throw runlakeError('SIGN_IN_LINK_INVALID');
      return found;
    };
    const key = await services.rateLimiter.limitSignIn(request.ip, redeem, isRefusal);
    return signIn(key, services, request);
  },
});

const getSignIn = defineOperation({
  operationId: 'getSignIn',
  method: 'GET',
  path: '/session',
  summary: 'Get the session of the request',
  description: 'Replaces the value of the cookie from time to time.',
  access: { anyKey: true, tenantScope: 'organization' },
  errors: ['SESSION_REQUIRED'],
  schema: { response: { 200: Session } },
  handler: async ({ caller, services, request }) => {
    requireSession(caller);
    const token = await rotateToken(services.database, caller.session);
    return new RawResponse({
      headers: {
        'cache-control': 'no-store',
        ...(token !== undefined && { 'set-cookie': buildSessionCookie(token, request, services.config) }),
      },
      body: await describeSession(services, caller),
    });
  },
});

const signOut = defineOperation({
  operationId: 'signOut',
  method: 'DELETE',
  path: '/session',
  summary: 'End the session of the request',
  access: { anyKey: true, tenantScope: 'organization' },
  errors: ['SESSION_REQUIRED'],
  schema: { response: { 204: Type.Null() } },
  handler: async ({ caller, services, request }) => {
    requireSession(caller);
    await endSession(services.database, caller.session);
    services.authenticator.forgetSession(readSessionCookie(request.headers) ?? '');
    return new RawResponse({
      status: 204,
      headers: { 'set-cookie': buildSessionCookie(undefined, request, services.config) },
    });
  },
});

export const signInOperations = [signInWithKey, signInOnce, getSignIn, signOut];
