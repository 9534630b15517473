/** A row of `workspaces`. Times are ISO 8601 with microseconds. */
export interface WorkspaceRecord {
  readonly id: string;
  readonly organization_id: string;
  readonly created_at: string;
  readonly display_name: string;
  readonly tenant_handle: string | null;
  readonly is_deleted: boolean;
}

export const maxHandleLength = 64;

export const workspaceColumns =
  'id, organization_id, created_at, display_name, tenant_handle, deleted_at IS NOT NULL AS is_deleted';
