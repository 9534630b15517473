import { Type } from 'typebox';
import { listWorkspaces as list } from '../../../pipelines/tenants/list-workspaces.ts';
import { defineOperation } from '../../server/operation.ts';
import { showWorkspace, Workspace } from './workspace-schema.ts';

export const listWorkspaces = defineOperation({
  operationId: 'listWorkspaces',
  method: 'GET',
  path: '/workspaces',
  aliases: ['/tenants'],
  tag: 'workspaces',
  summary: 'List the workspaces that the key has access to',
  access: { permission: 'workspaces:read', tenantScope: 'organization' },
  schema: {
    query: Type.Object({ include_deleted: Type.Boolean({ default: false }) }),
    response: { 200: Type.Array(Workspace) },
  },
  handler: async ({ caller, query, services }) => {
    const workspaces = await list(services.database, caller, { includeDeleted: query.include_deleted });
    return workspaces.map((workspace) => showWorkspace(workspace, caller));
  },
});
