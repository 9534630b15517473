import { type Static, Type } from 'typebox';
import { createKey, listKeys, type NewKey, revokeKey } from '../../pipelines/tenants/keys.ts';
import { permissions } from '../../pipelines/tenants/permissions.ts';
import { nullable, OneOf, optional, Text, Timestamp, Uuid } from '../server/formats.ts';
import { defineOperation } from '../server/operation.ts';

const KeyParams = Type.Object({ api_key_id: Uuid() });

/** Body of the operations that create API keys. The original API does not have `permissions` and `user_email`. */
const NewKeyBody = Type.Object({
  description: Type.Optional(Text({ maxLength: 1_000 })),
  read_only: Type.Optional(Type.Boolean()),
  expires_at: optional(Timestamp()),
  workspaces: optional(Type.Array(Uuid(), { minItems: 1, maxItems: 1_000 })),
  default_workspace_id: optional(
    Uuid({ description: 'Workspace of requests without `X-Tenant-Id`, for keys with access to several workspaces.' }),
  ),
  permissions: optional(
    Type.Array(OneOf(permissions.map(({ name }) => name)), {
      minItems: 1,
      maxItems: 100,
      description: 'Default: all permissions of the key of the request.',
    }),
  ),
  user_email: optional(
    Type.String({
      format: 'email',
      maxLength: 320,
      description: 'The user that the key belongs to. Default: the user of the request.',
    }),
  ),
});

/** Fields of the original API that Runlake does not support. */
const unsupportedKeyFields = ['role_id', 'org_role_id'];

const record = {
  id: Uuid(),
  short_key: Type.String(),
  description: Type.String(),
  read_only: Type.Boolean(),
  created_at: Timestamp(),
  last_used_at: nullable(Timestamp()),
  expires_at: nullable(Timestamp()),
  workspace_names: nullable(Type.Array(Type.String()), {
    description: 'null: all workspaces of the organization.',
  }),
  default_workspace_name: nullable(Type.String()),
  permissions: Type.Array(Type.String(), { description: '`*`: all permissions, including those of later releases.' }),
  user_id: Uuid(),
  user_email: Type.String(),
};

const Key = Type.Object(record);

const KeyWithSecret = Type.Object({
  ...record,
  key: Type.String({ description: 'The secret key. It is never returned again.' }),
});

function buildNewKey(body: Static<typeof NewKeyBody>, options: Pick<NewKey, 'organizationWide'>): NewKey {
  return {
    description: body.description ?? 'Default API key',
    readOnly: body.read_only ?? false,
    expiresAt: body.expires_at,
    workspaceIds: body.workspaces,
    defaultWorkspaceId: body.default_workspace_id,
    permissions: body.permissions,
    userEmail: body.user_email,
    ...options,
  };
}

const createApiKey = defineOperation({
  operationId: 'createApiKey',
  method: 'POST',
  path: '/api-key',
  aliases: ['/api-key/current'],
  summary: 'Create an API key of the workspace',
  description:
    'Without `workspaces`, the key has access to the workspace of the request. A key never gets more permissions than the key that creates it.',
  access: { permission: 'api-keys:manage', tenantScope: 'workspace' },
  unsupported: { body: unsupportedKeyFields },
  errors: ['CONFLICT', 'LIMIT_REACHED'],
  schema: { body: NewKeyBody, response: { 200: KeyWithSecret } },
  handler: async ({ caller, body, services }) =>
    createKey(services.database, caller, buildNewKey(body, { organizationWide: false }), services.config),
});

const createServiceKey = defineOperation({
  operationId: 'createServiceKey',
  method: 'POST',
  path: '/orgs/current/service-keys',
  aliases: ['/orgs/current/personal-access-tokens'],
  summary: 'Create an API key of the organization',
  description:
    'Without `workspaces`, the key has access to all workspaces. Its requests must name one in `X-Tenant-Id` unless `default_workspace_id` is set.',
  access: { permission: 'api-keys:manage', tenantScope: 'organization' },
  unsupported: { body: unsupportedKeyFields },
  errors: ['CONFLICT', 'LIMIT_REACHED'],
  schema: { body: NewKeyBody, response: { 200: KeyWithSecret } },
  handler: async ({ caller, body, services }) =>
    createKey(services.database, caller, buildNewKey(body, { organizationWide: true }), services.config),
});

const listApiKeys = defineOperation({
  operationId: 'listApiKeys',
  method: 'GET',
  path: '/api-key',
  aliases: ['/api-key/current'],
  summary: 'List the API keys of the workspace',
  description: 'Without revoked and expired keys, and without keys of the whole organization.',
  access: { permission: 'api-keys:read', tenantScope: 'workspace' },
  errors: ['ANSWER_TOO_LARGE'],
  schema: { response: { 200: Type.Array(Key) } },
  handler: async ({ caller, services }) => listKeys(services.database, caller, caller.workspaceId),
});

const listServiceKeys = defineOperation({
  operationId: 'listServiceKeys',
  method: 'GET',
  path: '/orgs/current/service-keys',
  aliases: ['/orgs/current/personal-access-tokens'],
  summary: 'List the API keys of the organization',
  description:
    'Only keys that have access to no more workspaces than the key of the request. Without revoked and expired keys.',
  access: { permission: 'api-keys:read', tenantScope: 'organization' },
  errors: ['ANSWER_TOO_LARGE'],
  schema: { response: { 200: Type.Array(Key) } },
  handler: async ({ caller, services }) => listKeys(services.database, caller, null),
});

const revokeApiKey = defineOperation({
  operationId: 'revokeApiKey',
  method: 'DELETE',
  path: '/api-key/:api_key_id',
  aliases: ['/api-key/current/:api_key_id'],
  summary: 'Revoke an API key of the workspace',
  description:
    'This process refuses the key immediately, other processes within two seconds. Usage stays attributed to the key. A key can revoke itself, and other keys only if it has all of their permissions.',
  access: { permission: 'api-keys:manage', tenantScope: 'workspace' },
  errors: ['NOT_FOUND'],
  schema: { params: KeyParams, response: { 200: Key } },
  handler: async ({ caller, params, services }) => revokeKey(services, caller, params.api_key_id, caller.workspaceId),
});

const revokeServiceKey = defineOperation({
  operationId: 'revokeServiceKey',
  method: 'DELETE',
  path: '/orgs/current/service-keys/:api_key_id',
  aliases: ['/orgs/current/personal-access-tokens/:api_key_id'],
  summary: 'Revoke an API key of the organization',
  description:
    'This process refuses the key immediately, other processes within two seconds. Usage stays attributed to the key. A key can revoke itself, and other keys only if it has all of their permissions.',
  access: { permission: 'api-keys:manage', tenantScope: 'organization' },
  errors: ['NOT_FOUND'],
  schema: { params: KeyParams, response: { 200: Key } },
  handler: async ({ caller, params, services }) => revokeKey(services, caller, params.api_key_id, null),
});

export const apiKeyOperations = [
  listApiKeys,
  createApiKey,
  revokeApiKey,
  listServiceKeys,
  createServiceKey,
  revokeServiceKey,
];
