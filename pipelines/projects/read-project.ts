import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import { type ProjectRecord, type ProjectRow, projectColumns, toProjectRecord } from './project-record.ts';

/** @throws NOT_FOUND if the workspace has no project with this id, or it is deleted. */
export async function readProject(database: Database, workspaceId: string, projectId: string): Promise<ProjectRecord> {
  const [row] = await database.query<ProjectRow>(
    `SELECT ${projectColumns} FROM projects WHERE id = $1 AND workspace_id = $2 AND deleted_at IS NULL`,
    [projectId, workspaceId],
  );
  if (!row) throw runlakeError('NOT_FOUND', { what: 'Session' });
  return toProjectRecord(row);
}
