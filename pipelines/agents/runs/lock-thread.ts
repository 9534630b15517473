import type { Sql } from '../../../infra/postgres/database.ts';

/**
 * Locks the row of a thread until the end of the transaction. Whatever changes which of its runs waits, runs or has ended does so
 * under this lock, taken before any row of a run. Who locks several does so in the order of their ids.
 *
 * @returns undefined where there is none.
 */
export async function lockThread(
  tx: Sql,
  organizationId: string,
  threadId: string,
): Promise<{ readonly hidden: boolean } | undefined> {
  const [row] = await tx.query<{ hidden: boolean }>(
    'SELECT hidden FROM agents.threads WHERE organization_id = $1 AND thread_id = $2 FOR UPDATE',
    [organizationId, threadId],
    { name: 'agents_lock_thread' },
  );
  return row;
}

/**
 * Settles what the row of a thread says of its runs: busy while one waits or runs, and when the next one is due. Last of what is
 * done under {@link lockThread}. A thread that is not kept for ever has its time again.
 */
export async function settleThreadStatus(tx: Sql, organizationId: string, threadId: string): Promise<void> {
  await tx.execute(
    `UPDATE agents.threads thread SET
       updated_at = clock_timestamp(),
       expires_at = clock_timestamp() + thread.ttl_minutes * interval '1 minute',
       status = CASE WHEN going.running OR waiting.due_at IS NOT NULL THEN 'busy' ELSE thread.rest_status END,
       next_due_at = CASE WHEN going.running THEN NULL ELSE waiting.due_at END
     FROM (
       SELECT EXISTS (
         SELECT FROM agents.runs WHERE organization_id = $1 AND thread_id = $2 AND status = 'running'
       ) AS running
     ) going, (
       SELECT min(due_at) AS due_at FROM agents.runs WHERE organization_id = $1 AND thread_id = $2 AND status = 'pending'
     ) waiting
     WHERE thread.organization_id = $1 AND thread.thread_id = $2`,
    [organizationId, threadId],
    { name: 'agents_settle_thread' },
  );
}
