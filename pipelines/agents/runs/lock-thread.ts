import type { Sql } from '../../../infra/postgres/database.ts';

/**
 * Locks the row of a thread until the end of the transaction. Whatever changes which of its runs waits, runs or has ended does so
 * under this lock, taken before any row of a run. Who locks several does so in the order of their ids.
 *
 * @returns undefined where there is none.
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

/** Settles what the row of a thread says of its runs: last of what is done under {@link lockThread}. */
export async function settleThreadStatus(tx: Sql, deploymentId: string, threadId: string): Promise<void> {
  await tx.query('SELECT agents.settle_thread($1, $2)', [deploymentId, threadId], { name: 'agents_settle_thread' });
}
