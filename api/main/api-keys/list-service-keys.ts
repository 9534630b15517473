import { Type } from 'typebox';
import { listKeys } from '../../../pipelines/tenants/list-keys.ts';
import { defineOperation } from '../../server/operation.ts';
import { Key } from './key-schema.ts';

export const listServiceKeys = defineOperation({
  operationId: 'listServiceKeys',
  method: 'GET',
  path: '/orgs/current/service-keys',
  aliases: ['/orgs/current/personal-access-tokens'],
  tag: 'api keys',
  summary: 'List the API keys of the organization',
  description: 'Only keys that have access to no more workspaces than the key of the request. Without revoked keys.',
  access: { permission: 'api-keys:read', tenantScope: 'organization' },
  schema: { response: { 200: Type.Array(Key) } },
  handler: async ({ caller, services }) => listKeys(services.database, caller, null),
});
