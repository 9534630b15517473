import { revokeKey } from '../../../pipelines/tenants/revoke-key.ts';
import { defineOperation } from '../../server/operation.ts';
import { Key, KeyParams } from './key-schema.ts';

export const revokeServiceKey = defineOperation({
  operationId: 'revokeServiceKey',
  method: 'DELETE',
  path: '/orgs/current/service-keys/:api_key_id',
  aliases: ['/orgs/current/personal-access-tokens/:api_key_id'],
  tag: 'api keys',
  summary: 'Revoke an API key of the organization',
  description:
    'This process refuses the key immediately, other processes within two seconds. Usage stays attributed to the key. A key can revoke itself, and other keys only if it has all of their permissions.',
  access: { permission: 'api-keys:manage', tenantScope: 'organization' },
  errors: ['NOT_FOUND'],
  schema: { params: KeyParams, response: { 200: Key } },
  handler: async ({ caller, params, services }) => revokeKey(services, caller, params.api_key_id, null),
});
