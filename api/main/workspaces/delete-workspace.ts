import { Type } from 'typebox';
import { deleteWorkspace as remove } from '../../../pipelines/tenants/delete-workspace.ts';
import { defineOperation } from '../../server/operation.ts';
import { WorkspaceParams } from './workspace-schema.ts';

export const deleteWorkspace = defineOperation({
  operationId: 'deleteWorkspace',
  method: 'DELETE',
  path: '/workspaces/:workspace_id',
  tag: 'workspaces',
  summary: 'Delete a workspace',
  description:
    'No key reaches it any more, its links end, and a job deletes its data: runs, feedback, attachments, rows of its agent servers, ' +
    'exports that are not finished and credentials of destinations. Its usage stays. The last workspace of an organization stays.',
  access: { permission: 'workspaces:manage', tenantScope: 'organization' },
  errors: ['NOT_FOUND', 'CONFLICT'],
  schema: { params: WorkspaceParams, response: { 200: Type.Object({ message: Type.String() }) } },
  handler: async ({ caller, params, services }) => {
    await remove(services, caller, params.workspace_id);
    return { message: 'Workspace deleted' };
  },
});
