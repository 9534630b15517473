import type { Database } from '../../infra/postgres/pool.ts';
import type { DeletedProject } from './delete-projects.ts';

/**
 * Queues the deletion job again for every deleted project whose runs are not purged: the job may be missing after a
 * crash, or after the queues were unavailable or lost.
 */
export async function requeueDeletions({
  database,
  enqueueProjectDeletion,
}: {
  database: Database;
  enqueueProjectDeletion: (project: DeletedProject) => Promise<void>;
}): Promise<void> {
  const left = await database.query<DeletedProject>(
    `SELECT id AS "projectId", workspace_id AS "workspaceId" FROM projects
     WHERE deleted_at IS NOT NULL AND purged_at IS NULL`,
  );
  for (const project of left) await enqueueProjectDeletion(project);
}
