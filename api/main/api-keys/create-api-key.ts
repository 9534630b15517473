import { createKey } from '../../../pipelines/tenants/create-key.ts';
import { defineOperation } from '../../server/operation.ts';
import { buildNewKey, KeyWithSecret, NewKeyBody, unsupportedKeyFields } from './key-schema.ts';

export const createApiKey = defineOperation({
  operationId: 'createApiKey',
  method: 'POST',
  path: '/api-key',
  aliases: ['/api-key/current'],
  tag: 'api keys',
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
