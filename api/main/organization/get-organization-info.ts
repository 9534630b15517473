import { readOrganization } from '../../../pipelines/tenants/read-organization.ts';
import { defineOperation } from '../../server/operation.ts';
import { OrganizationInfo, showOrganization } from './organization-schema.ts';

export const getOrganizationInfo = defineOperation({
  operationId: 'getOrganizationInfo',
  method: 'GET',
  path: '/orgs/current/info',
  tag: 'organization',
  summary: 'Get the organization of the key, without payment fields',
  access: { permission: 'organization:read', tenantScope: 'organization' },
  schema: { response: { 200: OrganizationInfo } },
  handler: async ({ caller, services }) => ({
    ...showOrganization(await readOrganization(services.database, caller), caller),
    disabled: false,
  }),
});
