import { Type } from 'typebox';
import { permissions } from '../../../pipelines/tenants/permissions.ts';
import { defineOperation } from '../../server/operation.ts';

const PermissionItem = Type.Object({
  name: Type.String(),
  description: Type.String(),
  access_scope: Type.Union([Type.Literal('organization'), Type.Literal('workspace')]),
});

export const listPermissions = defineOperation({
  operationId: 'listPermissions',
  method: 'GET',
  path: '/orgs/permissions',
  tag: 'organization',
  summary: 'List all permissions that a key can have',
  access: { permission: 'organization:read', tenantScope: 'organization' },
  schema: { response: { 200: Type.Array(PermissionItem) } },
  handler: async () => permissions.map(({ name, about, scope }) => ({ name, description: about, access_scope: scope })),
});
