import { Type } from 'typebox';
import { deleteOrganization as remove } from '../../../pipelines/tenants/delete-organization.ts';
import { Uuid } from '../../server/formats.ts';
import { defineOperation } from '../../server/operation.ts';
import { OrganizationItem, showItem } from './organization-schema.ts';

export const deleteOrganization = defineOperation({
  operationId: 'deleteOrganization',
  method: 'DELETE',
  path: '/orgs/:organization_id',
  tag: 'organization',
  summary: 'Delete an organization',
  description:
    'Its keys, streams and links stop working, on other processes within two seconds, and jobs delete the data of its workspaces as ' +
    'when a workspace is deleted. `deletion` in the response, and in `GET /orgs?include_deleted=true`, shows the progress. The request ' +
    'is idempotent. Only for keys of the first organization, which belongs to the operator and cannot be deleted.',
  access: { permission: 'organizations:manage', tenantScope: 'organization' },
  errors: ['OPERATOR_ONLY', 'NOT_FOUND', 'CONFLICT'],
  schema: { params: Type.Object({ organization_id: Uuid() }), response: { 200: OrganizationItem } },
  handler: async ({ caller, params, services }) => showItem(await remove(services, caller, params.organization_id)),
});
