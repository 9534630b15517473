import { Type } from 'typebox';
import { deleteWorkspace as remove } from '../../../pipelines/tenants/delete-workspace.ts';
import { defineOperation } from '../../server/operation.ts';
import { WorkspaceParams } from './workspace-schema.ts';

export const deleteWorkspace = defineOperation({
  operationId: 'deleteWorkspace',
  method: 'DELETE',
  path: '/workspaces/:workspace_id',
  tag: 'workspaces',
  summary: 'Close a workspace',
  description: 'No key reaches it any more; its usage stays. The last workspace of an organization cannot be closed.',
  access: { permission: 'workspaces:manage', tenantScope: 'organization' },
  errors: ['NOT_FOUND', 'CONFLICT'],
  schema: { params: WorkspaceParams, response: { 200: Type.Object({ message: Type.String() }) } },
  handler: async ({ caller, params, services }) => {
    await remove(services, caller, params.workspace_id);
    return { message: 'Workspace deleted' };
  },
});
