import type { Database } from '../../infra/postgres/pool.ts';
import type { Caller } from './caller.ts';
import { type WorkspaceRecord, workspaceColumns } from './workspace-record.ts';

/** The workspaces that the caller has access to, oldest first. */
export function listWorkspaces(
  database: Database,
  caller: Caller,
  { includeDeleted }: { includeDeleted: boolean },
): Promise<WorkspaceRecord[]> {
  return database.query<WorkspaceRecord>(
    `SELECT ${workspaceColumns} FROM workspaces
     WHERE organization_id = $1 AND ($2 OR id = ANY ($3::uuid[])) AND ($4 OR deleted_at IS NULL)
     ORDER BY created_at, id`,
    [caller.organizationId, caller.organizationWide, [...caller.readableWorkspaceIds], includeDeleted],
  );
}
