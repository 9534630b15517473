import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import type { Caller } from './caller.ts';
import { type WorkspaceRecord, workspaceColumns } from './workspace-record.ts';

/** Whether the workspace exists and is not deleted. For links, which contain no API key. */
export async function isLiveWorkspace(database: Database, workspaceId: string): Promise<boolean> {
  const rows = await database.query('SELECT FROM workspaces WHERE id = $1 AND deleted_at IS NULL', [workspaceId]);
  return rows.length > 0;
}

/** @throws NOT_FOUND if the caller has no access to a workspace with this id, or it is deleted. */
export async function readWorkspace(database: Database, caller: Caller, workspaceId: string): Promise<WorkspaceRecord> {
  const [workspace] = await database.query<WorkspaceRecord>(
    `SELECT ${workspaceColumns} FROM workspaces
     WHERE id = $1 AND organization_id = $2 AND ($3 OR id = ANY ($4::uuid[])) AND deleted_at IS NULL`,
    [workspaceId, caller.organizationId, caller.organizationWide, [...caller.readableWorkspaceIds]],
  );
  if (!workspace) throw runlakeError('NOT_FOUND', { what: 'Workspace' });
  return workspace;
}
