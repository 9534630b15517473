import { type Static, Type } from 'typebox';
import {
  authenticate as authenticateUser,
  chooseUser,
  waitForAuthentication,
} from '../../pipelines/oauth/authenticate.ts';
import { completeAuthentication } from '../../pipelines/oauth/complete.ts';
import { JsonObject, nullable, OneOf, optional, Text, Uuid } from '../server/formats.ts';
import { defineOperation } from '../server/operation.ts';
import { ProviderId, userFields } from './oauth-user.ts';

const access = { permission: 'oauth:authenticate', tenantScope: 'workspace' } as const;

/** Errors of requests to a provider. */
const providerErrors = [
  'OAUTH_ENDPOINT_NOT_ALLOWED',
  'OAUTH_PROVIDER_REFUSED',
  'OAUTH_PROVIDER_UNAVAILABLE',
  'OAUTH_RESPONSE_TOO_LARGE',
  'SEAL_BROKEN',
  'SEAL_KEY_UNKNOWN',
] as const;

const Request = Type.Object({
  ...userFields,
  provider: ProviderId(),
  scopes: Type.Array(Type.String({ minLength: 1, maxLength: 1_024, pattern: '^[\\x21\\x23-\\x5b\\x5d-\\x7e]+$' }), {
    maxItems: 200,
    description: 'The token has at least these scopes.',
  }),
  agent_id: optional(Text({ minLength: 1, maxLength: 255 }), {
    description: 'Agent that uses the token. Tokens that were granted for an agent are used only by it.',
  }),
  force_new: optional(Type.Boolean(), { description: 'Start an authentication in any case. Default: false.' }),
  token_id: optional(Uuid({ description: 'The only token that may be used or replaced.' })),
  is_default: optional(Type.Boolean(), { description: 'Make a new token the default one. Default: true.' }),
});

const Response = Type.Object({
  status: OneOf(['completed', 'pending']),
  url: nullable(Type.String(), {
    description: 'Page of the provider where the user gives access: once, within ten minutes.',
  }),
  auth_id: nullable(Type.String(), { description: 'For `GET /v2/auth/wait/{auth_id}`.' }),
  token: nullable(Type.String()),
  user_id: Type.String(),
  metadata: nullable(JsonObject(), { description: 'Id, scopes, expiry and label of the token.' }),
});

const authenticate = defineOperation({
  operationId: 'authenticate',
  method: 'POST',
  path: '/v2/auth/authenticate',
  summary: 'Get an OAuth token of a user, or start an authentication',
  description:
    'Returns a valid token with enough scopes if there is one, refreshed if needed. Otherwise returns a URL; after the user has given access there, the same request returns the token.',
  access,
  unsupported: { body: ['use_agent_builder_public_oauth'], flags: ['use_agent_builder_public_oauth'] },
  errors: [...providerErrors, 'NOT_FOUND', 'LIMIT_REACHED', 'OVERLOADED'],
  schema: { body: Request, response: { 200: Response } },
  handler: async ({ caller, body, services: { oauth } }) => {
    const owner = await chooseUser(oauth, caller, body);
    const result = await authenticateUser(oauth, owner, toRequest(body));
    const none = { url: null, auth_id: null, token: null, user_id: owner.userId, metadata: null };
    if (result.status === 'pending') {
      return { ...none, status: result.status, url: result.url, auth_id: result.authenticationId };
    }
    const { id: token_id, accessToken, scopes, expiresAt, label } = result.token;
    const metadata = { token_id, scopes, expires_at: expiresAt, provider_account_label: label };
    return { ...none, status: result.status, token: accessToken, metadata };
  },
});

const toRequest = (body: Static<typeof Request>) => ({
  providerId: body.provider,
  scopes: body.scopes,
  agentId: body.agent_id,
  tokenId: body.token_id,
  forceNew: body.force_new ?? undefined,
  isDefault: body.is_default ?? undefined,
});

const waitForAuth = defineOperation({
  operationId: 'waitForAuthentication',
  method: 'GET',
  path: '/v2/auth/wait/:auth_id',
  summary: 'Wait until a user has given access',
  description:
    '`not_found`: the authentication expired or failed, for example because the user denied access; start another one. `timeout`: the user has done nothing yet; wait again.',
  access,
  errors: [...providerErrors, 'OVERLOADED'],
  schema: {
    params: Type.Object({ auth_id: Text({ minLength: 1, maxLength: 255 }) }),
    query: Type.Object({
      timeout: Type.Optional(Type.Integer({ minimum: 0, maximum: 600, description: 'Seconds. Default: 30.' })),
    }),
    response: {
      200: Type.Object({
        status: OneOf(['completed', 'pending', 'timeout', 'not_found']),
        token: nullable(Type.String()),
      }),
    },
  },
  handler: async ({ caller, params, query, services: { oauth }, request }) => {
    const accessEnded = request.access?.ended;
    const { status, accessToken } = await waitForAuthentication(oauth, caller.workspaceId, params.auth_id, {
      timeoutMs: (query.timeout ?? 30) * 1_000,
      signal: AbortSignal.any([request.signal, request.server.drainStarted, ...(accessEnded ? [accessEnded] : [])]),
    });
    accessEnded?.throwIfAborted();
    return { status, token: accessToken ?? null };
  },
});

const finalizeAuth = defineOperation({
  operationId: 'finalizeAuthentication',
  method: 'POST',
  path: '/v2/auth/callback/:provider_id',
  summary: 'Complete an authentication with the parameters of a redirect',
  description: 'For pages of your own at the redirect URI that is registered with the provider.',
  access,
  errors: [...providerErrors, 'OAUTH_STATE_INVALID', 'OAUTH_CONSENT_DENIED', 'LIMIT_REACHED'],
  schema: {
    params: Type.Object({ provider_id: ProviderId() }),
    body: Type.Object({
      code: Text({ minLength: 1, maxLength: 8_192 }),
      state: Text({ minLength: 1, maxLength: 1_024 }),
    }),
    response: { 200: Type.Object({ status: Type.Literal('completed') }) },
  },
  handler: async ({ caller, params, body, services: { oauth } }) => {
    await completeAuthentication(oauth, params.provider_id, body, caller.workspaceId);
    return { status: 'completed' as const };
  },
});

export const authenticationOperations = [authenticate, waitForAuth, finalizeAuth];
