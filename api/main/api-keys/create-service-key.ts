import { createKey } from '../../../pipelines/tenants/create-key.ts';
import { defineOperation } from '../../server/operation.ts';
import { buildNewKey, KeyWithSecret, NewKeyBody, unsupportedKeyFields } from './key-schema.ts';

export const createServiceKey = defineOperation({
  operationId: 'createServiceKey',
  method: 'POST',
  path: '/orgs/current/service-keys',
  aliases: ['/orgs/current/personal-access-tokens'],
  tag: 'api keys',
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
