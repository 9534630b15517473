import { Type } from 'typebox';
import { createOrganization as create } from '../../../pipelines/tenants/create-organization.ts';
import { optional, Text, Uuid } from '../../server/formats.ts';
import { defineOperation } from '../../server/operation.ts';
import { DisplayName, Handle } from '../workspaces/workspace-schema.ts';
import { OrganizationItem, showItem } from './organization-schema.ts';

const CreatedOrganization = Type.Object({
  ...OrganizationItem.properties,
  workspace: Type.Object({ id: Uuid(), display_name: Type.String(), tenant_handle: Type.String() }),
  admin: Type.Object({ id: Uuid(), email: Type.String() }),
  api_key: Type.Object({
    id: Uuid(),
    key: Type.String({ description: 'Admin key of the whole organization. It is never returned again.' }),
  }),
});

export const createOrganization = defineOperation({
  operationId: 'createOrganization',
  method: 'POST',
  path: '/orgs',
  tag: 'organization',
  summary: 'Create an organization',
  description:
    'Also creates its first workspace, its first user and an admin key, which is returned only once. Only for keys of the first ' +
    'organization, which belongs to the operator.',
  access: { permission: 'organizations:manage', tenantScope: 'organization' },
  unsupported: { body: ['is_personal', 'security_contact'], flags: ['is_personal'] },
  errors: ['OPERATOR_ONLY', 'CONFLICT', 'ORGANIZATION_LIMIT_REACHED'],
  schema: {
    body: Type.Object({
      id: Type.Optional(Uuid()),
      display_name: DisplayName(),
      workspace_display_name: optional(Text({ minLength: 1, maxLength: 256 }), { description: 'Default: `Default`.' }),
      tenant_handle: Type.Optional(Handle()),
      admin_email: optional(Type.String({ format: 'email', maxLength: 320 }), {
        description: 'Default: the email of the caller.',
      }),
    }),
    response: { 200: CreatedOrganization },
  },
  handler: async ({ caller, body, services }) => {
    const created = await create(services, caller, {
      id: body.id?.toLowerCase(),
      displayName: body.display_name,
      workspaceName: body.workspace_display_name ?? undefined,
      handle: body.tenant_handle,
      adminEmail: body.admin_email ?? undefined,
    });
    return {
      ...showItem({
        ...{ id: created.organizationId, display_name: body.display_name, created_at: created.createdAt },
        ...{ deleted_at: null, workspaces: 1, purged_workspaces: 0 },
      }),
      workspace: { id: created.workspaceId, display_name: created.workspaceName, tenant_handle: created.tenantHandle },
      admin: { id: created.userId, email: created.adminEmail },
      api_key: { id: created.keyId, key: created.key },
    };
  },
});
