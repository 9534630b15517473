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
    'Keys lose access to it, its links stop working, and a job deletes its data: runs, feedback, attachments, rows of its agent servers, ' +
    'unfinished exports and credentials of destinations. Usage stays. The last workspace of an organization cannot be deleted.',
  access: { permission: 'workspaces:manage', tenantScope: 'organization' },
  errors: ['NOT_FOUND', 'CONFLICT'],
  schema: { params: WorkspaceParams, response: { 200: Type.Object({ message: Type.String() }) } },
  handler: async ({ caller, params, services }) => {
    await remove(services, caller, params.workspace_id);
    return { message: 'Workspace deleted' };
  },
});
