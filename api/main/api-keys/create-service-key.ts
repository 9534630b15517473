import { createKey } from '../../../pipelines/tenants/create-key.ts';
import { defineOperation } from '../../server/operation.ts';
import { KeyWithSecret, NewKeyBody, newKeyOf, unsupportedKeyFields } from './key-schema.ts';

export const createServiceKey = defineOperation({
  operationId: 'createServiceKey',
  method: 'POST',
  path: '/orgs/current/service-keys',
  aliases: ['/orgs/current/personal-access-tokens'],
  tag: 'api keys',
  summary: 'Make an API key for the organization',
  description:
    'Without `workspaces` it reaches all of them, and its requests name one in `X-Tenant-Id` unless `default_workspace_id` is set.',
  access: { permission: 'api-keys:manage', tenantScope: 'organization' },
  unsupported: { body: unsupportedKeyFields },
  errors: ['CONFLICT', 'LIMIT_REACHED'],
  schema: { body: NewKeyBody, response: { 200: KeyWithSecret } },
  handler: async ({ caller, body, services }) =>
    createKey(services.database, caller, newKeyOf(body, { organizationWide: true }), services.config),
});
