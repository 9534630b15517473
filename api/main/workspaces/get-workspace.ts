import { readWorkspace } from '../../../pipelines/tenants/read-workspace.ts';
import { defineOperation } from '../../server/operation.ts';
import { showWorkspace, Workspace, WorkspaceParams } from './workspace-schema.ts';

export const getWorkspace = defineOperation({
  operationId: 'getWorkspace',
  method: 'GET',
  path: '/workspaces/:workspace_id',
  tag: 'workspaces',
  summary: 'Get a workspace',
  access: { permission: 'workspaces:read', tenantScope: 'organization' },
  errors: ['NOT_FOUND'],
  schema: { params: WorkspaceParams, response: { 200: Workspace } },
  handler: async ({ caller, params, services }) =>
    showWorkspace(await readWorkspace(services.database, caller, params.workspace_id), caller),
});
