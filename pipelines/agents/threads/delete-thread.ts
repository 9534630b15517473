import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Database, Sql } from '../../../infra/postgres/database.ts';
import { deleteCheckpoints } from '../checkpoints/delete-checkpoints.ts';
import { threadKey } from '../checkpoints/thread-key.ts';
import { removeRuns } from '../runs/remove-runs.ts';

/**
 * Deletes a thread with its runs and state. A running run loses its lease: the process that executes it stops it and
 * can no longer write.
 *
 * @throws THREAD_NOT_FOUND
 */
export async function deleteThread(database: Database, deploymentId: string, threadId: string): Promise<void> {
  const deleted = await database.transaction((tx) => removeThreads(tx, deploymentId, [threadId]));
  if (deleted === 0) throw runlakeError('THREAD_NOT_FOUND', { thread: threadId });
}

/** Deletes the threads of `threadIds` that exist, hidden ones only with `hidden`. @returns how many it deleted. */
export async function removeThreads(
  tx: Sql,
  deploymentId: string,
  threadIds: readonly string[],
  { hidden = false }: { readonly hidden?: boolean } = {},
): Promise<number> {
  const rows = await tx.query<{ thread_id: string }>(
    `SELECT thread_id FROM agents.threads WHERE deployment_id = $1 AND thread_id = ANY ($2::uuid[]) AND ($3 OR NOT hidden)
     ORDER BY thread_id FOR UPDATE`,
    [deploymentId, threadIds, hidden],
  );
  if (rows.length === 0) return 0;
  const found = rows.map(({ thread_id }) => thread_id);
  await removeRuns(tx, deploymentId, found);
  await deleteCheckpoints(
    tx,
    found.map((threadId) => threadKey(deploymentId, threadId)),
  );
  return tx.execute('DELETE FROM agents.threads WHERE deployment_id = $1 AND thread_id = ANY ($2::uuid[])', [
    deploymentId,
    found,
  ]);
}
