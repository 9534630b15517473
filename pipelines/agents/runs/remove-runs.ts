import type { Sql } from '../../../infra/postgres/database.ts';

/**
 * Removes runs of threads that are locked, all or those of an assistant. Those that wait or run end as interrupted: whoever executes
 * one has lost its lease and stops it. Nobody sees them any more, but rows whose end is not in the log stay until it is, so
 * that who follows a run learns of its end.
 */
export async function removeRuns(
  tx: Sql,
  deploymentId: string,
  threadIds: readonly string[],
  assistantId?: string,
): Promise<void> {
  const of = 'deployment_id = $1 AND thread_id = ANY ($2::uuid[]) AND ($3::uuid IS NULL OR assistant_id = $3)';
  const params = [deploymentId, threadIds, assistantId ?? null];
  await tx.execute(`DELETE FROM agents.runs WHERE ${of} AND end_published`, params);
  // In the order in which everybody locks several runs, so that nobody waits for each other.
  await tx.query(`SELECT FROM agents.runs WHERE ${of} ORDER BY run_id FOR UPDATE`, params);
  const left = await tx.execute(
    `UPDATE agents.runs SET removed = true, end_published = false, ended_at = coalesce(ended_at, clock_timestamp()),
       lease_token = CASE WHEN status IN ('pending', 'running') THEN NULL ELSE lease_token END,
       status = CASE WHEN status IN ('pending', 'running') THEN 'interrupted' ELSE status END
     WHERE ${of}`,
    params,
  );
  if (left > 0) await tx.execute("SELECT pg_notify('agent_cancels', $1), pg_notify('agent_ends', $1)", [deploymentId]);
}
