import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import type { Caller } from './caller.ts';
import { workspaceConflict } from './create-workspace.ts';
import { type WorkspaceRecord, workspaceColumns } from './workspace-record.ts';

/** Absent and null fields stay unchanged. */
export interface WorkspaceChange {
  readonly displayName?: string | null | undefined;
  readonly handle?: string | null | undefined;
}

/**
 * @throws NOT_FOUND if the caller has no access to a workspace with this id, or it is deleted, CONFLICT if the handle
 *   is taken.
 */
export async function updateWorkspace(
  database: Database,
  caller: Caller,
  workspaceId: string,
  { displayName = null, handle = null }: WorkspaceChange,
): Promise<WorkspaceRecord> {
  try {
    const [workspace] = await database.query<WorkspaceRecord>(
      `UPDATE workspaces SET display_name = coalesce($5, display_name), tenant_handle = coalesce($6, tenant_handle)
       WHERE id = $1 AND organization_id = $2 AND ($3 OR id = ANY ($4::uuid[])) AND deleted_at IS NULL
       RETURNING ${workspaceColumns}`,
      [
        workspaceId,
        caller.organizationId,
        caller.organizationWide,
        [...caller.readableWorkspaceIds],
        displayName,
        handle,
      ],
    );
    if (!workspace) throw runlakeError('NOT_FOUND', { what: 'Workspace' });
    return workspace;
  } catch (error) {
    throw workspaceConflict(error) ?? error;
  }
}
