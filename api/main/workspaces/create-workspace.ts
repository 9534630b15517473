import { Type } from 'typebox';
import { createWorkspace as create } from '../../../pipelines/tenants/create-workspace.ts';
import { Uuid } from '../../server/formats.ts';
import { defineOperation } from '../../server/operation.ts';
import { DisplayName, Handle, showWorkspace, Workspace } from './workspace-schema.ts';

export const createWorkspace = defineOperation({
  operationId: 'createWorkspace',
  method: 'POST',
  path: '/workspaces',
  tag: 'workspaces',
  summary: 'Create a workspace',
  access: { permission: 'workspaces:manage', tenantScope: 'organization' },
  errors: ['CONFLICT', 'LIMIT_REACHED'],
  schema: {
    body: Type.Object({
      id: Type.Optional(Uuid()),
      display_name: DisplayName(),
      tenant_handle: Type.Optional(Handle()),
    }),
    response: { 200: Workspace },
  },
  handler: async ({ caller, body, services }) => {
    const { id, display_name: displayName, tenant_handle: handle } = body;
    return showWorkspace(await create(services, caller, { id, displayName, handle }), caller);
  },
});
