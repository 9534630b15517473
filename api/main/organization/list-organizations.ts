import { Type } from 'typebox';
import { listOrganizations as list } from '../../../pipelines/tenants/read-organization.ts';
import { defineOperation } from '../../server/operation.ts';
import { OrganizationItem, showItem } from './organization-schema.ts';

export const listOrganizations = defineOperation({
  operationId: 'listOrganizations',
  method: 'GET',
  path: '/orgs',
  tag: 'organization',
  summary: 'The organizations that the key reaches',
  description:
    'Its own. A key of the first organization, which is that of the operator, with the permission `organizations:manage` lists all.',
  access: { permission: 'organization:read', tenantScope: 'organization' },
  schema: {
    query: Type.Object({ include_deleted: Type.Boolean({ default: false }) }),
    response: { 200: Type.Array(OrganizationItem) },
  },
  handler: async ({ caller, query, services }) =>
    (await list(services.database, caller, { includeDeleted: query.include_deleted })).map(showItem),
});
