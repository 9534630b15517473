import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import type { ProjectResolver } from './resolve-project.ts';

export interface DeletedProject {
  readonly workspaceId: string;
  readonly projectId: string;
}

/**
 * Deletes projects, all or none: their names become available at once, and a job deletes their runs. The rows stay,
 * because usage shows the names. A crash before the job is queued leaves `purged_at` empty; `requeueDeletions` then
 * queues it.
 *
 * @throws NOT_FOUND if the workspace has no project with one of the ids, or it is deleted.
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
    if (count !== wanted.size) throw runlakeError('NOT_FOUND', { what: 'Session' });
  });
  projects.forget();
  for (const projectId of wanted) await enqueueProjectDeletion({ workspaceId, projectId });
}
