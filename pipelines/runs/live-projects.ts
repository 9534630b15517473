import type { Database } from '../../infra/postgres/database.ts';

/**
 * Ids of the projects of a workspace that are not deleted; restricted to `among` if given.
 *
 * @throws errors of the database.
 */
export async function liveProjectIds(
  database: Database,
  workspaceId: string,
  among?: readonly string[],
): Promise<string[]> {
  const rows = await database.query<{ id: string }>(
    `SELECT id FROM projects
     WHERE workspace_id = $1 AND deleted_at IS NULL AND ($2::uuid[] IS NULL OR id = ANY ($2::uuid[]))`,
    [workspaceId, among ?? null],
    { name: 'live-projects' },
  );
  return rows.map((row) => row.id);
}
