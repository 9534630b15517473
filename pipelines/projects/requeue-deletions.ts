import type { Database } from '../../infra/postgres/pool.ts';
import type { DeletedProject } from './delete-projects.ts';

/**
 * Hands every deleted project whose runs are still there to its job again: a crash, or queues that were away or came back empty,
 * may have kept it from being there.
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
