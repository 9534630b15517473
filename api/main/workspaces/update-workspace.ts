import { Type } from 'typebox';
import { updateWorkspace as update } from '../../../pipelines/tenants/update-workspace.ts';
import { optional } from '../../server/formats.ts';
import { defineOperation } from '../../server/operation.ts';
import { DisplayName, Handle, showWorkspace, Workspace, WorkspaceParams } from './workspace-schema.ts';

export const updateWorkspace = defineOperation({
  operationId: 'updateWorkspace',
  method: 'PATCH',
  path: '/workspaces/:workspace_id',
  tag: 'workspaces',
  summary: 'Rename a workspace',
  description: 'Absent and null fields stay unchanged.',
  access: { permission: 'workspaces:manage', tenantScope: 'organization' },
  errors: ['NOT_FOUND', 'CONFLICT'],
  schema: {
    params: WorkspaceParams,
    body: Type.Object({
      display_name: optional(DisplayName()),
      tenant_handle: Type.Optional(Handle()),
    }),
    response: { 200: Workspace },
  },
  handler: async ({ caller, params, body, services }) => {
    const change = { displayName: body.display_name, handle: body.tenant_handle };
    return showWorkspace(await update(services.database, caller, params.workspace_id, change), caller);
  },
});
