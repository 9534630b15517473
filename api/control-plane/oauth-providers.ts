import type { FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import { createMcpProvider } from '../../pipelines/oauth/discover-mcp.ts';
import { clientAuthMethods, listProviders, providerTypes, readProvider } from '../../pipelines/oauth/provider.ts';
import { createProvider, deleteProvider, updateProvider } from '../../pipelines/oauth/write-provider.ts';
import { nullable, OneOf, optional, Text, Timestamp, Uuid } from '../server/formats.ts';
import { defineOperation } from '../server/operation.ts';
import { buildPageUrl } from '../server/public-base.ts';
import type { Services } from '../server/services.ts';
import { ProviderId } from './oauth-user.ts';

const readAccess = { permission: 'oauth:read', tenantScope: 'organization' } as const;
const manageAccess = { permission: 'oauth:manage', tenantScope: 'organization' } as const;

const ProviderParams = Type.Object({ provider_id: ProviderId() });
const Name = () => Text({ minLength: 1, maxLength: 255 });
const Credential = () => Type.String({ minLength: 1, maxLength: 4_096, pattern: '^[\\x20-\\x7e]+$' });
const Url = () => Text({ minLength: 1, maxLength: 2_048 });
const ChallengeMethod = () => OneOf(['S256']);
const revocationField = {
  revocation_url: optional(Url(), { description: 'Endpoint at which deleted tokens are revoked (RFC 7009).' }),
};

const NewProvider = Type.Object({
  provider_id: ProviderId(),
  name: Name(),
  client_id: Credential(),
  client_secret: optional(Credential(), { description: 'Stored encrypted, and never returned.' }),
  auth_url: Url(),
  token_url: Url(),
  ...revocationField,
  uses_pkce: optional(Type.Boolean(), { description: 'Default: true.' }),
  code_challenge_method: optional(ChallengeMethod()),
  provider_type: optional(OneOf(providerTypes), {
    description:
      'For providers that differ from the standard: how they name scopes, and which they need for a refresh.',
  }),
  token_endpoint_auth_method: optional(OneOf(clientAuthMethods), {
    description: 'Default: `client_secret_post`, or `none` without a secret.',
  }),
});

const ProviderChange = Type.Object({
  name: optional(Name()),
  client_id: optional(Credential()),
  client_secret: optional(Credential()),
  auth_url: optional(Url()),
  token_url: optional(Url()),
  ...revocationField,
  uses_pkce: optional(Type.Boolean()),
  code_challenge_method: optional(ChallengeMethod()),
});

const NewMcpProvider = Type.Object({ provider_id: ProviderId(), name: Name(), mcp_server_url: Url() });

/** A provider in a response, without its secret. */
const Provider = Type.Object({
  id: Uuid(),
  organization_id: Uuid(),
  provider_id: Type.String(),
  name: Type.String(),
  client_id: Type.String(),
  auth_url: Type.String(),
  token_url: Type.String(),
  revocation_url: nullable(Type.String()),
  uses_pkce: Type.Boolean(),
  code_challenge_method: nullable(Type.String()),
  provider_type: nullable(Type.String()),
  mcp_server_url: nullable(Type.String()),
  token_endpoint_auth_method: Type.String(),
  is_dynamic_client: Type.Boolean(),
  redirect_uri: Type.String({ description: 'The URI to register with the provider.' }),
  created_at: Timestamp(),
  updated_at: Timestamp(),
});

const buildRedirectUri = (providerId: string, request: FastifyRequest, { config }: Services) =>
  buildPageUrl(`/host-oauth-callback/${providerId}`, request, config);

const listOAuthProviders = defineOperation({
  operationId: 'listOAuthProviders',
  method: 'GET',
  path: '/v2/auth/providers',
  summary: 'List the OAuth providers of the organization',
  access: readAccess,
  errors: ['ANSWER_TOO_LARGE'],
  schema: { response: { 200: Type.Array(Provider) } },
  handler: ({ caller, services }) => listProviders(services.database, caller.organizationId),
});

const createOAuthProvider = defineOperation({
  operationId: 'createOAuthProvider',
  method: 'POST',
  path: '/v2/auth/providers',
  summary: 'Create an OAuth provider',
  description:
    'Register `redirect_uri` of the response with the provider. It is under RUNLAKE_PUBLIC_URL, or else under the host of this request.',
  access: manageAccess,
  errors: ['CONFLICT', 'LIMIT_REACHED'],
  schema: { body: NewProvider, response: { 200: Provider } },
  handler: ({ caller, body, services, request }) =>
    createProvider(services.oauth, caller.organizationId, {
      providerId: body.provider_id,
      name: body.name,
      clientId: body.client_id,
      clientSecret: body.client_secret,
      authUrl: body.auth_url,
      tokenUrl: body.token_url,
      revocationUrl: body.revocation_url,
      usesPkce: body.uses_pkce,
      providerType: body.provider_type,
      authMethod: body.token_endpoint_auth_method,
      redirectUri: buildRedirectUri(body.provider_id, request, services),
    }),
});

const discoverMcpProvider = defineOperation({
  operationId: 'createMcpOAuthProvider',
  method: 'POST',
  path: '/v2/auth/providers/mcp-discover',
  summary: 'Create an OAuth provider for an MCP server',
  description: 'Finds the authorization server of the MCP server, and registers a client there.',
  access: manageAccess,
  errors: [
    'CONFLICT',
    'LIMIT_REACHED',
    'OAUTH_DISCOVERY_FAILED',
    'OAUTH_ENDPOINT_NOT_ALLOWED',
    'OAUTH_RESPONSE_TOO_LARGE',
  ],
  schema: { body: NewMcpProvider, response: { 200: Provider } },
  handler: ({ caller, body, services, request }) =>
    createMcpProvider(services.oauth, caller.organizationId, {
      providerId: body.provider_id,
      name: body.name,
      mcpServerUrl: body.mcp_server_url,
      redirectUri: buildRedirectUri(body.provider_id, request, services),
    }),
});

const getOAuthProvider = defineOperation({
  operationId: 'getOAuthProvider',
  method: 'GET',
  path: '/v2/auth/providers/:provider_id',
  summary: 'Read an OAuth provider',
  access: readAccess,
  errors: ['NOT_FOUND'],
  schema: { params: ProviderParams, response: { 200: Provider } },
  handler: ({ caller, params, services }) => readProvider(services.database, caller.organizationId, params.provider_id),
});

const updateOAuthProvider = defineOperation({
  operationId: 'updateOAuthProvider',
  method: 'PATCH',
  path: '/v2/auth/providers/:provider_id',
  summary: 'Change an OAuth provider',
  description:
    'Fields that are absent or null stay unchanged. `redirect_uri` is built anew, except for MCP servers. `token_url` and ' +
    '`revocation_url` cannot move to another origin, because they get the secret of the client and the tokens of users.',
  access: manageAccess,
  errors: ['NOT_FOUND'],
  schema: { params: ProviderParams, body: ProviderChange, response: { 200: Provider } },
  handler: ({ caller, params: { provider_id }, body, services, request }) =>
    updateProvider(services.oauth, caller.organizationId, provider_id, {
      name: body.name,
      clientId: body.client_id,
      clientSecret: body.client_secret,
      authUrl: body.auth_url,
      tokenUrl: body.token_url,
      revocationUrl: body.revocation_url,
      usesPkce: body.uses_pkce,
      redirectUri: buildRedirectUri(provider_id, request, services),
    }),
});

const deleteOAuthProvider = defineOperation({
  operationId: 'deleteOAuthProvider',
  method: 'DELETE',
  path: '/v2/auth/providers/:provider_id',
  summary: 'Delete an OAuth provider with its tokens',
  description: 'The tokens are not revoked at the provider.',
  access: manageAccess,
  errors: ['NOT_FOUND'],
  schema: { params: ProviderParams, response: { 200: Type.Object({ message: Type.String() }) } },
  handler: async ({ caller, params, services }) => {
    await deleteProvider(services.oauth, caller.organizationId, params.provider_id);
    return { message: 'OAuth provider deleted' };
  },
});

export const providerOperations = [
  listOAuthProviders,
  createOAuthProvider,
  discoverMcpProvider,
  getOAuthProvider,
  updateOAuthProvider,
  deleteOAuthProvider,
];
