import { Type } from 'typebox';
import { listKeys } from '../../../pipelines/tenants/list-keys.ts';
import { defineOperation } from '../../server/operation.ts';
import { Key } from './key-schema.ts';

export const listApiKeys = defineOperation({
  operationId: 'listApiKeys',
  method: 'GET',
  path: '/api-key',
  aliases: ['/api-key/current'],
  tag: 'api keys',
  summary: 'List the API keys of the workspace',
  description: 'Without revoked keys and keys of the whole organization.',
  access: { permission: 'api-keys:read', tenantScope: 'workspace' },
  schema: { response: { 200: Type.Array(Key) } },
  handler: async ({ caller, services }) => listKeys(services.database, caller, caller.workspaceId),
});
