import { Type } from 'typebox';
import { readWorkspace } from '../../../pipelines/tenants/read-workspace.ts';
import { nullable, Timestamp, Uuid } from '../../server/formats.ts';
import { defineOperation } from '../../server/operation.ts';

const Settings = Type.Object({
  id: Uuid(),
  display_name: Type.String(),
  created_at: Timestamp(),
  tenant_handle: nullable(Type.String()),
});

export const getSettings = defineOperation({
  operationId: 'getSettings',
  method: 'GET',
  path: '/settings',
  tag: 'info',
  summary: 'Get the workspace of the request',
  access: { permission: 'workspaces:read', tenantScope: 'workspace' },
  schema: { response: { 200: Settings } },
  handler: async ({ caller, services }) => readWorkspace(services.database, caller, caller.workspaceId),
});
