import type { Database, Sql } from '../../../infra/postgres/database.ts';
import { deleteCheckpoints } from '../checkpoints/delete-checkpoints.ts';
import { threadKey } from '../checkpoints/thread-key.ts';
import type { EndedRun } from './run-row.ts';

/**
 * Marks the ends of runs of one deployment as published to the event log. Deletes the runs that must not remain:
 * rolled-back runs, and temporary runs with their hidden threads. A temporary run with a resumable stream is deleted
 * `resumeMs` later, so that clients can reconnect to the stream.
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
    // Not all were marked: delete the rows of runs that were removed after their end.
    if ((await markPublished(database, deploymentId, runIds)) < kept.length) {
      await database.execute(
        'DELETE FROM agents.runs WHERE deployment_id = $1 AND run_id = ANY ($2::uuid[]) AND removed',
        [deploymentId, runIds],
      );
    }
  }
  await Promise.all(
    runs.filter(({ kwargs }) => kwargs.temporary).map((run) => deleteTemporary(database, run, resumeMs)),
  );
}

/** @returns how many rows it changed; removed runs do not count. */
async function markPublished(sql: Sql, deploymentId: string, runIds: readonly string[]): Promise<number> {
  // Found by id: the partial index on unpublished ends contains many dead entries.
  return sql.execute(
    `UPDATE agents.runs SET end_published = true
     WHERE deployment_id = $1 AND run_id = ANY ($2::uuid[]) AND end_published IS DISTINCT FROM true AND NOT removed`,
    [deploymentId, runIds],
    { name: 'agents_ends_published' },
  );
}

/** Deletes a temporary run, or sets the TTL of its thread if the stream is resumable. */
async function deleteTemporary(
  database: Database,
  { deploymentId, threadId, runId, kwargs }: EndedRun,
  resumeMs: number,
): Promise<void> {
  await database.transaction(async (tx) => {
    if (kwargs.resumable && (await markPublished(tx, deploymentId, [runId])) > 0) {
      await tx.execute(
        `UPDATE agents.threads SET ttl_strategy = 'delete', expires_at = clock_timestamp() + $3 * interval '1 millisecond'
         WHERE deployment_id = $1 AND thread_id = $2 AND hidden`,
        [deploymentId, threadId, resumeMs],
      );
      return;
    }
    const deleted = await tx.execute(
      'DELETE FROM agents.threads WHERE deployment_id = $1 AND thread_id = $2 AND hidden',
      [deploymentId, threadId],
      { name: 'agents_delete_hidden' },
    );
    if (deleted > 0) await deleteCheckpoints(tx, [threadKey(deploymentId, threadId)]);
    await tx.execute('DELETE FROM agents.runs WHERE deployment_id = $1 AND run_id = $2 AND end_published = false', [
      deploymentId,
      runId,
    ]);
  });
}
