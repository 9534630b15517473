import type { Sql } from '../../../infra/postgres/database.ts';

/**
 * Removes the runs of threads, or only those of an assistant. The caller must have locked the threads. Pending and
 * running runs end as interrupted; a process that executes one loses its lease and stops it. Clients no longer see the
 * runs. A row whose end is not in the event log stays until it is, so that readers of the stream receive the end.
 */
export async function removeRuns(
  tx: Sql,
  deploymentId: string,
  threadIds: readonly string[],
  assistantId?: string,
): Promise<void> {
  const matching = 'deployment_id = $1 AND thread_id = ANY ($2::uuid[]) AND ($3::uuid IS NULL OR assistant_id = $3)';
  const params = [deploymentId, threadIds, assistantId ?? null];
  await tx.execute(`DELETE FROM agents.runs WHERE ${matching} AND end_published`, params);
  // All transactions lock runs in this order, which prevents deadlocks.
  await tx.query(`SELECT FROM agents.runs WHERE ${matching} ORDER BY run_id FOR UPDATE`, params);
  const left = await tx.execute(
    `UPDATE agents.runs SET removed = true, end_published = false, ended_at = coalesce(ended_at, clock_timestamp()),
       lease_token = CASE WHEN status IN ('pending', 'running') THEN NULL ELSE lease_token END,
       status = CASE WHEN status IN ('pending', 'running') THEN 'interrupted' ELSE status END
     WHERE ${matching}`,
    params,
  );
  if (left > 0) await tx.execute("SELECT pg_notify('agent_cancels', $1), pg_notify('agent_ends', $1)", [deploymentId]);
}
