import { fault } from '../../infra/errors/runlake-error.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import type { ProjectResolver } from './resolve-project.ts';

export interface DeletedProject {
  readonly workspaceId: string;
  readonly projectId: string;
}

/**
 * Deletes projects, all or none: their names are free at once, and their runs are handed to a job. The rows stay, because usage
 * keeps the names. A crash before the job is queued leaves `purged_at` empty, by which the deletion is found again.
 *
 * @throws NOT_FOUND where the workspace lacks a living project of one of the ids.
 */
export async function deleteProjects(
  {
    database,
    projects,
    enqueueProjectDeletion,
  }: {
    database: Database;
    projects: ProjectResolver;
    enqueueProjectDeletion: (project: DeletedProject) => Promise<void>;
  },
  workspaceId: string,
  projectIds: readonly string[],
): Promise<void> {
  const wanted = new Set(projectIds.map((id) => id.toLowerCase()));
  await database.transaction(async (tx) => {
    const count = await tx.execute(
      `UPDATE projects SET deleted_at = now(), updated_at = now()
       WHERE id = ANY ($1::uuid[]) AND workspace_id = $2 AND deleted_at IS NULL`,
      [[...wanted], workspaceId],
    );
    if (count !== wanted.size) throw fault('NOT_FOUND', { what: 'Session' });
  });
  projects.forget();
  for (const projectId of wanted) await enqueueProjectDeletion({ workspaceId, projectId });
}
