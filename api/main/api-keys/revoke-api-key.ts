import { revokeKey } from '../../../pipelines/tenants/revoke-key.ts';
import { defineOperation } from '../../server/operation.ts';
import { Key, KeyParams } from './key-schema.ts';

export const revokeApiKey = defineOperation({
  operationId: 'revokeApiKey',
  method: 'DELETE',
  path: '/api-key/:api_key_id',
  aliases: ['/api-key/current/:api_key_id'],
  tag: 'api keys',
  summary: 'Revoke an API key of the workspace',
  description:
    'This process refuses the key immediately, other processes within two seconds. Usage stays attributed to the key. A key can revoke itself, and other keys only if it has all of their permissions.',
  access: { permission: 'api-keys:manage', tenantScope: 'workspace' },
  errors: ['NOT_FOUND'],
  schema: { params: KeyParams, response: { 200: Key } },
  handler: async ({ caller, params, services }) => revokeKey(services, caller, params.api_key_id, caller.workspaceId),
});
