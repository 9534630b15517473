import { Type } from 'typebox';
import type { Caller } from '../../../pipelines/tenants/caller.ts';
import { maxHandleLength, type WorkspaceRecord } from '../../../pipelines/tenants/workspace-record.ts';
import { nullable, Text, Timestamp, Uuid } from '../../server/formats.ts';

export const DisplayName = () => Text({ minLength: 1, maxLength: 256 });

export const Handle = () =>
  nullable(Type.String({ minLength: 1, maxLength: maxHandleLength, pattern: '^[a-z0-9][a-z0-9_-]*$' }));

export const WorkspaceParams = Type.Object({ workspace_id: Uuid() });

export const Workspace = Type.Object({
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

/** Formats a workspace for the caller. */
export function showWorkspace(workspace: WorkspaceRecord, caller: Caller) {
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
