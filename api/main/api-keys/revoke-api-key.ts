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
    'It ends at once, on other processes within two seconds. Its usage keeps its name. A key can end itself, and only such others as have no permission that it lacks itself.',
  access: { permission: 'api-keys:manage', tenantScope: 'workspace' },
  errors: ['NOT_FOUND'],
  schema: { params: KeyParams, response: { 200: Key } },
  handler: async ({ caller, params, services }) => revokeKey(services, caller, params.api_key_id, caller.workspaceId),
});
