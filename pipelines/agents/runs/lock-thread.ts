import type { Sql } from '../../../infra/postgres/database.ts';

/**
 * Locks the row of a thread until the end of the transaction. Every transaction that changes the status of a run holds
 * this lock, and takes it before it locks rows of runs. A transaction that locks several threads does so in the order
 * of their ids.
 *
 * @returns undefined if the thread does not exist.
 */
export async function lockThread(
  tx: Sql,
  deploymentId: string,
  threadId: string,
): Promise<{ readonly hidden: boolean } | undefined> {
  const [row] = await tx.query<{ hidden: boolean }>(
    'SELECT hidden FROM agents.threads WHERE deployment_id = $1 AND thread_id = $2 FOR UPDATE',
    [deploymentId, threadId],
    { name: 'agents_lock_thread' },
  );
  return row;
}

/**
 * Updates the status and due time of a thread from its runs. Call it last in a transaction that holds the lock of
 * {@link lockThread}.
 */
export async function updateThreadStatus(tx: Sql, deploymentId: string, threadId: string): Promise<void> {
  await tx.query('SELECT agents.update_thread_status($1, $2)', [deploymentId, threadId], {
    name: 'agents_settle_thread',
  });
}
