import { Type } from 'typebox';
import { listOrganizations as list } from '../../../pipelines/tenants/read-organization.ts';
import { defineOperation } from '../../server/operation.ts';
import { OrganizationItem, showItem } from './organization-schema.ts';

export const listOrganizations = defineOperation({
  operationId: 'listOrganizations',
  method: 'GET',
  path: '/orgs',
  tag: 'organization',
  summary: 'List the organizations that the key has access to',
  description:
    'Only the organization of the key. A key of the first organization, which belongs to the operator, with the permission `organizations:manage` lists all organizations.',
  access: { permission: 'organization:read', tenantScope: 'organization' },
  schema: {
    query: Type.Object({ include_deleted: Type.Boolean({ default: false }) }),
    response: { 200: Type.Array(OrganizationItem) },
  },
  handler: async ({ caller, query, services }) =>
    (await list(services.database, caller, { includeDeleted: query.include_deleted })).map(showItem),
});
