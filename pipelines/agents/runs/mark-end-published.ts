import type { Database, Sql } from '../../../infra/postgres/database.ts';
import { deleteCheckpoints } from '../checkpoints/delete-checkpoints.ts';
import { threadKey } from '../checkpoints/thread-key.ts';
import type { EndedRun } from './run-row.ts';

/**
 * Notes that the end of a run is in the log. With it a run goes that is not to stay: one that was rolled back, and one without a
 * thread together with the hidden one it was given; where its stream is resumable they go `resumeMs` later, so that clients can come
 * back to it.
 */
export async function markEndPublished(database: Database, run: EndedRun, resumeMs = 120_000): Promise<void> {
  const { organizationId, threadId, runId, kwargs } = run;
  if (kwargs.temporary) {
    await database.transaction(async (tx) => {
      if (kwargs.resumable && (await keepForNow(tx, run, resumeMs))) return;
      const gone = await tx.execute(
        'DELETE FROM agents.threads WHERE organization_id = $1 AND thread_id = $2 AND hidden',
        [organizationId, threadId],
        { name: 'agents_delete_hidden' },
      );
      if (gone > 0) await deleteCheckpoints(tx, [threadKey(organizationId, threadId)]);
      await tx.execute('DELETE FROM agents.runs WHERE organization_id = $1 AND run_id = $2 AND end_published = false', [
        organizationId,
        runId,
      ]);
    });
  } else {
    // It may have been deleted since it ended.
    const noted = await database.execute(
      'UPDATE agents.runs SET end_published = true WHERE organization_id = $1 AND run_id = $2 AND end_published = false AND NOT removed',
      [organizationId, runId],
      { name: 'agents_end_published' },
    );
    if (noted > 0) return;
    await database.execute('DELETE FROM agents.runs WHERE organization_id = $1 AND run_id = $2 AND removed', [
      organizationId,
      runId,
    ]);
  }
}

/** False where nobody is to see it any more. */
async function keepForNow(tx: Sql, { organizationId, threadId, runId }: EndedRun, resumeMs: number): Promise<boolean> {
  const noted = await tx.execute(
    'UPDATE agents.runs SET end_published = true WHERE organization_id = $1 AND run_id = $2 AND end_published = false AND NOT removed',
    [organizationId, runId],
    { name: 'agents_end_published' },
  );
  if (noted === 0) return false;
  await tx.execute(
    `UPDATE agents.threads SET ttl_strategy = 'delete', expires_at = clock_timestamp() + $3 * interval '1 millisecond'
     WHERE organization_id = $1 AND thread_id = $2 AND hidden`,
    [organizationId, threadId, resumeMs],
  );
  return true;
}
