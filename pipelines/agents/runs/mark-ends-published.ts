import type { Database, Sql } from '../../../infra/postgres/database.ts';
import { deleteCheckpoints } from '../checkpoints/delete-checkpoints.ts';
import { threadKey } from '../checkpoints/thread-key.ts';
import type { EndedRun } from './run-row.ts';

/**
 * Marks that the ends of runs of a deployment are in the log. With it runs go that are not to stay: those that were rolled back, and
 * those without a thread together with the hidden one they were given; where their stream is resumable they go `resumeMs` later, so that
 * clients can come back to it.
 */
export async function markEndsPublished(
  database: Database,
  runs: readonly EndedRun[],
  resumeMs = 120_000,
): Promise<void> {
  const kept = runs.filter(({ kwargs }) => !kwargs.temporary);
  if (kept.length > 0) {
    const [{ deploymentId }] = kept as [EndedRun];
    const runIds = kept.map(({ runId }) => runId);
    // They may have been deleted since they ended.
    if ((await note(database, deploymentId, runIds)) < kept.length) {
      await database.execute(
        'DELETE FROM agents.runs WHERE deployment_id = $1 AND run_id = ANY ($2::uuid[]) AND removed',
        [deploymentId, runIds],
      );
    }
  }
  await Promise.all(runs.filter(({ kwargs }) => kwargs.temporary).map((run) => letGo(database, run, resumeMs)));
}

/** @returns how many are noted: those that somebody is to see, still. */
async function note(sql: Sql, deploymentId: string, runIds: readonly string[]): Promise<number> {
  // Found by their ids: an index of the ends that are missing holds much that is not missing any more.
  return sql.execute(
    `UPDATE agents.runs SET end_published = true
     WHERE deployment_id = $1 AND run_id = ANY ($2::uuid[]) AND end_published IS DISTINCT FROM true AND NOT removed`,
    [deploymentId, runIds],
    { name: 'agents_ends_published' },
  );
}

async function letGo(
  database: Database,
  { deploymentId, threadId, runId, kwargs }: EndedRun,
  resumeMs: number,
): Promise<void> {
  await database.transaction(async (tx) => {
    if (kwargs.resumable && (await note(tx, deploymentId, [runId])) > 0) {
      await tx.execute(
        `UPDATE agents.threads SET ttl_strategy = 'delete', expires_at = clock_timestamp() + $3 * interval '1 millisecond'
         WHERE deployment_id = $1 AND thread_id = $2 AND hidden`,
        [deploymentId, threadId, resumeMs],
      );
      return;
    }
    const gone = await tx.execute(
      'DELETE FROM agents.threads WHERE deployment_id = $1 AND thread_id = $2 AND hidden',
      [deploymentId, threadId],
      { name: 'agents_delete_hidden' },
    );
    if (gone > 0) await deleteCheckpoints(tx, [threadKey(deploymentId, threadId)]);
    await tx.execute('DELETE FROM agents.runs WHERE deployment_id = $1 AND run_id = $2 AND end_published = false', [
      deploymentId,
      runId,
    ]);
  });
}
