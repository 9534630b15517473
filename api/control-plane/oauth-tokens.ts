import { Type } from 'typebox';
import { chooseUser } from '../../pipelines/oauth/authenticate.ts';
import {
  changeToken,
  deleteToken,
  deleteTokens,
  deleteTokensOfType,
  hasToken,
  hasTokensOfType,
  listTokens,
  readToken,
} from '../../pipelines/oauth/token.ts';
import { nullable, optional, Text, Timestamp, Uuid } from '../server/formats.ts';
import { defineOperation } from '../server/operation.ts';
import { ProviderId, UserQuery, userFields } from './oauth-user.ts';

const readAccess = { permission: 'oauth:read', tenantScope: 'workspace' } as const;
const writeAccess = { permission: 'oauth:authenticate', tenantScope: 'workspace' } as const;

const TokenParams = Type.Object({ token_id: Uuid() });
const ProviderQuery = Type.Object({ provider_id: ProviderId(), ...userFields });

/** A token in a response, without its values. */
const Token = Type.Object({
  id: Uuid(),
  provider_id: Type.String(),
  provider_account_label: nullable(Type.String()),
  scopes: Type.Array(Type.String()),
  expires_at: nullable(Timestamp(), { description: 'Expiry of the access token, which is refreshed if possible.' }),
  is_default: Type.Boolean(),
  created_at: Timestamp(),
  updated_at: Timestamp(),
});

const listOAuthTokens = defineOperation({
  operationId: 'listOAuthTokens',
  method: 'GET',
  path: '/v2/auth/tokens',
  summary: 'List the OAuth tokens of a user',
  description: 'Values of tokens are never returned here.',
  access: readAccess,
  errors: ['ANSWER_TOO_LARGE', 'NOT_FOUND'],
  schema: {
    query: Type.Object({ provider_id: optional(ProviderId()), ...userFields }),
    response: { 200: Type.Array(Token) },
  },
  handler: async ({ caller, query, services: { oauth } }) =>
    listTokens(oauth, await chooseUser(oauth, caller, query), query.provider_id ?? undefined),
});

const oauthTokenExists = defineOperation({
  operationId: 'oauthTokenExists',
  method: 'GET',
  path: '/v2/auth/tokens/exists',
  summary: 'Whether a user has a token for a provider',
  access: readAccess,
  errors: ['NOT_FOUND'],
  schema: { query: ProviderQuery, response: { 200: Type.Object({ has_token: Type.Boolean() }) } },
  handler: async ({ caller, query, services: { oauth } }) => ({
    has_token: await hasToken(oauth, await chooseUser(oauth, caller, query), query.provider_id),
  }),
});

const getOAuthToken = defineOperation({
  operationId: 'getOAuthToken',
  method: 'GET',
  path: '/v2/auth/tokens/:token_id',
  summary: 'Read an OAuth token of a user, without its value',
  access: readAccess,
  errors: ['NOT_FOUND'],
  schema: { params: TokenParams, query: UserQuery, response: { 200: Token } },
  handler: async ({ caller, params, query, services: { oauth } }) =>
    readToken(oauth.database, await chooseUser(oauth, caller, query), params.token_id),
});

const updateOAuthToken = defineOperation({
  operationId: 'updateOAuthToken',
  method: 'PATCH',
  path: '/v2/auth/tokens/:token_id/metadata',
  summary: 'Label an OAuth token of a user, or make it the default one',
  access: writeAccess,
  errors: ['NOT_FOUND'],
  schema: {
    params: TokenParams,
    query: UserQuery,
    body: Type.Object({
      provider_account_label: optional(Text({ maxLength: 255 }), { description: 'Null removes the label.' }),
      is_default: optional(Type.Boolean()),
    }),
    response: { 200: Token },
  },
  handler: async ({ caller, params, query, body, services: { oauth } }) =>
    changeToken(oauth, await chooseUser(oauth, caller, query), params.token_id, {
      label: body.provider_account_label,
      isDefault: body.is_default,
    }),
});

const deleteOAuthToken = defineOperation({
  operationId: 'deleteOAuthToken',
  method: 'DELETE',
  path: '/v2/auth/tokens/:token_id',
  summary: 'Revoke and delete an OAuth token of a user',
  description: 'The token is deleted even if the provider cannot be reached.',
  access: writeAccess,
  errors: ['NOT_FOUND'],
  schema: { params: TokenParams, query: UserQuery, response: { 204: Type.Null() } },
  handler: async ({ caller, params, query, services: { oauth } }) => {
    await deleteToken(oauth, await chooseUser(oauth, caller, query), params.token_id);
    return null;
  },
});

const deleteOAuthTokens = defineOperation({
  operationId: 'deleteOAuthTokens',
  method: 'DELETE',
  path: '/v2/auth/tokens',
  summary: 'Revoke and delete all OAuth tokens of a user for a provider',
  access: writeAccess,
  errors: ['NOT_FOUND'],
  schema: {
    query: ProviderQuery,
    response: { 200: Type.Object({ message: Type.String(), provider_id: Type.String(), deleted: Type.Integer() }) },
  },
  handler: async ({ caller, query, services: { oauth } }) => {
    const deleted = await deleteTokens(oauth, await chooseUser(oauth, caller, query), query.provider_id);
    return { message: 'OAuth tokens deleted', provider_id: query.provider_id, deleted };
  },
});

const slackPath = '/v2/auth/tokens/workspace/slack';

const slackTokenExists = defineOperation({
  operationId: 'slackTokenExists',
  method: 'GET',
  path: `${slackPath}/exists`,
  summary: 'Whether any user of the workspace has a token for Slack',
  access: readAccess,
  schema: { response: { 200: Type.Object({ has_token: Type.Boolean() }) } },
  handler: async ({ caller, services: { oauth } }) => ({
    has_token: await hasTokensOfType(oauth, caller.workspaceId, 'slack'),
  }),
});

const deleteSlackTokens = defineOperation({
  operationId: 'deleteSlackTokens',
  method: 'DELETE',
  path: slackPath,
  summary: 'Revoke and delete the tokens of all users of the workspace for Slack',
  access: { permission: 'oauth:manage', tenantScope: 'workspace' },
  schema: { response: { 200: Type.Object({ message: Type.String(), deleted: Type.Integer() }) } },
  handler: async ({ caller, services: { oauth } }) => {
    const deleted = await deleteTokensOfType(oauth, caller.workspaceId, 'slack');
    return { message: 'OAuth tokens deleted', deleted };
  },
});

export const tokenOperations = [
  listOAuthTokens,
  oauthTokenExists,
  getOAuthToken,
  updateOAuthToken,
  deleteOAuthToken,
  deleteOAuthTokens,
  slackTokenExists,
  deleteSlackTokens,
];
