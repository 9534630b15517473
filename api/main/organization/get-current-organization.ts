import { readOrganization } from '../../../pipelines/tenants/read-organization.ts';
import { defineOperation } from '../../server/operation.ts';
import { Organization, showOrganization } from './organization-schema.ts';

export const getCurrentOrganization = defineOperation({
  operationId: 'getCurrentOrganization',
  method: 'GET',
  path: '/orgs/current',
  tag: 'organization',
  summary: 'Get the organization of the key',
  access: { permission: 'organization:read', tenantScope: 'organization' },
  schema: { response: { 200: Organization } },
  handler: async ({ caller, services }) => ({
    ...showOrganization(await readOrganization(services.database, caller), caller),
    connected_to_stripe: false,
    connected_to_metronome: false,
    payment_method: null,
    has_cancelled: false,
    end_of_billing_period: null,
    current_plan: null,
    upcoming_plan: null,
  }),
});
