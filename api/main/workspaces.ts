import { Type } from 'typebox';
import type { Caller } from '../../pipelines/tenants/caller.ts';
import {
  createWorkspace as create,
  listWorkspaces as list,
  maxHandleLength,
  readWorkspace,
  readWorkspaceStats,
  deleteWorkspace as remove,
  updateWorkspace as update,
  type WorkspaceRecord,
} from '../../pipelines/tenants/workspaces.ts';
import { nullable, optional, Text, Timestamp, Uuid } from '../server/formats.ts';
import { defineOperation } from '../server/operation.ts';

export const DisplayName = () => Text({ minLength: 1, maxLength: 256 });

export const Handle = () =>
  nullable(Type.String({ minLength: 1, maxLength: maxHandleLength, pattern: '^[a-z0-9][a-z0-9_-]*$' }));

const WorkspaceParams = Type.Object({ workspace_id: Uuid() });

const Workspace = Type.Object({
  id: Uuid(),
  organization_id: Uuid(),
  created_at: Timestamp(),
  display_name: Type.String(),
  is_personal: Type.Boolean(),
  is_deleted: Type.Boolean(),
  tenant_handle: nullable(Type.String()),
  data_plane_url: Type.Null(),
  read_only: Type.Boolean({ description: 'True if the key of the request is read-only.' }),
  role_id: Type.Null(),
  role_name: Type.Null(),
  permissions: Type.Array(Type.String(), { description: 'Permissions of the key of the request.' }),
});

function formatWorkspace(workspace: WorkspaceRecord, caller: Caller) {
  return {
    ...workspace,
    is_personal: false,
    data_plane_url: null,
    read_only: caller.readOnly,
    role_id: null,
    role_name: null,
    permissions: [...caller.permissions],
  };
}

const createWorkspace = defineOperation({
  operationId: 'createWorkspace',
  method: 'POST',
  path: '/workspaces',
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
    return formatWorkspace(await create(services, caller, { id, displayName, handle }), caller);
  },
});

const deleteWorkspace = defineOperation({
  operationId: 'deleteWorkspace',
  method: 'DELETE',
  path: '/workspaces/:workspace_id',
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

const getWorkspace = defineOperation({
  operationId: 'getWorkspace',
  method: 'GET',
  path: '/workspaces/:workspace_id',
  summary: 'Get a workspace',
  access: { permission: 'workspaces:read', tenantScope: 'organization' },
  errors: ['NOT_FOUND'],
  schema: { params: WorkspaceParams, response: { 200: Workspace } },
  handler: async ({ caller, params, services }) =>
    formatWorkspace(await readWorkspace(services.database, caller, params.workspace_id), caller),
});

const listWorkspaces = defineOperation({
  operationId: 'listWorkspaces',
  method: 'GET',
  path: '/workspaces',
  aliases: ['/tenants'],
  summary: 'List the workspaces that the key has access to',
  access: { permission: 'workspaces:read', tenantScope: 'organization' },
  schema: {
    query: Type.Object({ include_deleted: Type.Boolean({ default: false }) }),
    response: { 200: Type.Array(Workspace) },
  },
  handler: async ({ caller, query, services }) => {
    const workspaces = await list(services.database, caller, { includeDeleted: query.include_deleted });
    return workspaces.map((workspace) => formatWorkspace(workspace, caller));
  },
});

const getWorkspaceStats = defineOperation({
  operationId: 'getWorkspaceStats',
  method: 'GET',
  path: '/workspaces/current/stats',
  summary: 'Count the objects of the workspace of the request',
  access: { permission: 'workspaces:read', tenantScope: 'workspace' },
  unsupported: { query: ['tag_value_id'] },
  schema: {
    response: {
      200: Type.Object({
        tenant_id: Uuid({ description: 'Id of the workspace.' }),
        dataset_count: Type.Integer(),
        tracer_session_count: Type.Integer(),
        repo_count: Type.Integer({ description: 'Prompts, agents and skills.' }),
        annotation_queue_count: Type.Integer(),
        deployment_count: Type.Integer(),
        evaluator_count: Type.Integer(),
      }),
    },
  },
  handler: async ({ caller, services }) => readWorkspaceStats(services.database, caller.workspaceId),
});

const updateWorkspace = defineOperation({
  operationId: 'updateWorkspace',
  method: 'PATCH',
  path: '/workspaces/:workspace_id',
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
    return formatWorkspace(await update(services.database, caller, params.workspace_id, change), caller);
  },
});

export const workspaceOperations = [
  listWorkspaces,
  createWorkspace,
  getWorkspace,
  getWorkspaceStats,
  updateWorkspace,
  deleteWorkspace,
];
