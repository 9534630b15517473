import type { Database } from '../../../infra/postgres/database.ts';
import { keepLatestCheckpoint } from '../checkpoints/keep-latest-checkpoint.ts';
import { threadKey } from '../checkpoints/thread-key.ts';
import { removeThreads } from './delete-thread.ts';
import type { TtlStrategy } from './thread.ts';

/** Deletes or prunes up to 1,000 expired threads, except busy ones. @returns how many; call it again until this is 0. */
export async function expireThreads(database: Database, deploymentId: string): Promise<number> {
  return database.transaction(async (tx) => {
    const rows = await tx.query<{ thread_id: string; ttl_strategy: TtlStrategy }>(
      `SELECT thread_id, ttl_strategy FROM agents.threads
       WHERE deployment_id = $1 AND expires_at <= clock_timestamp() AND status <> 'busy'
         AND (write_until IS NULL OR write_until <= clock_timestamp())
       ORDER BY expires_at LIMIT 1000 FOR UPDATE SKIP LOCKED`,
      [deploymentId],
    );
    const idsWith = (strategy: TtlStrategy) =>
      rows.filter((row) => row.ttl_strategy === strategy).map((row) => row.thread_id);
    const [deleted, pruned] = [idsWith('delete'), idsWith('keep_latest')];
    if (deleted.length > 0) await removeThreads(tx, deploymentId, deleted, { hidden: true });
    if (pruned.length > 0) {
      await keepLatestCheckpoint(
        tx,
        pruned.map((threadId) => threadKey(deploymentId, threadId)),
      );
      // The next run sets the expiry again; until then a thread need not be pruned again.
      await tx.execute(
        'UPDATE agents.threads SET expires_at = NULL WHERE deployment_id = $1 AND thread_id = ANY ($2::uuid[])',
        [deploymentId, pruned],
      );
    }
    return rows.length;
  });
}
