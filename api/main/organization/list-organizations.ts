import { Type } from 'typebox';
import { readOrganization } from '../../../pipelines/tenants/read-organization.ts';
import { Timestamp, Uuid } from '../../server/formats.ts';
import { defineOperation } from '../../server/operation.ts';

const OrganizationItem = Type.Object({
  id: Uuid(),
  display_name: Type.String(),
  tier: Type.Null(),
  created_at: Timestamp(),
  is_personal: Type.Boolean(),
  disabled: Type.Boolean(),
});

export const listOrganizations = defineOperation({
  operationId: 'listOrganizations',
  method: 'GET',
  path: '/orgs',
  tag: 'organization',
  summary: 'The organizations that the key reaches: its own',
  access: { permission: 'organization:read', tenantScope: 'organization' },
  schema: { response: { 200: Type.Array(OrganizationItem) } },
  handler: async ({ caller, services }) => [
    { ...(await readOrganization(services.database, caller)), tier: null, is_personal: false, disabled: false },
  ],
});
