import { createKey } from '../../../pipelines/tenants/create-key.ts';
import { defineOperation } from '../../server/operation.ts';
import { KeyWithSecret, NewKeyBody, newKeyOf, unsupportedKeyFields } from './key-schema.ts';

export const createApiKey = defineOperation({
  operationId: 'createApiKey',
  method: 'POST',
  path: '/api-key',
  aliases: ['/api-key/current'],
  tag: 'api keys',
  summary: 'Make an API key for the workspace',
  description:
    'Without `workspaces` it reaches the workspace of the request. It never gets more than the key that makes it.',
  access: { permission: 'api-keys:manage', tenantScope: 'workspace' },
  unsupported: { body: unsupportedKeyFields },
  errors: ['CONFLICT', 'LIMIT_REACHED'],
  schema: { body: NewKeyBody, response: { 200: KeyWithSecret } },
  handler: async ({ caller, body, services }) =>
    createKey(services.database, caller, newKeyOf(body, { organizationWide: false }), services.config),
});
