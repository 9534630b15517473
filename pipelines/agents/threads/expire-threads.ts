import type { Database } from '../../../infra/postgres/database.ts';
import { keepLatestCheckpoint } from '../checkpoints/keep-latest-checkpoint.ts';
import { threadKey } from '../checkpoints/thread-key.ts';
import { removeThreads } from './delete-thread.ts';
import type { TtlStrategy } from './thread.ts';

/** Prunes threads whose time is over, at most a thousand; busy ones wait. The result is how many. Repeat while it is not 0. */
export async function expireThreads(database: Database, deploymentId: string): Promise<number> {
  return database.transaction(async (tx) => {
    const rows = await tx.query<{ thread_id: string; ttl_strategy: TtlStrategy }>(
      `SELECT thread_id, ttl_strategy FROM agents.threads
       WHERE deployment_id = $1 AND expires_at <= clock_timestamp() AND status <> 'busy'
         AND (write_until IS NULL OR write_until <= clock_timestamp())
       ORDER BY expires_at LIMIT 1000 FOR UPDATE SKIP LOCKED`,
      [deploymentId],
    );
    const of = (strategy: TtlStrategy) =>
      rows.filter((row) => row.ttl_strategy === strategy).map((row) => row.thread_id);
    const [deleted, pruned] = [of('delete'), of('keep_latest')];
    if (deleted.length > 0) await removeThreads(tx, deploymentId, deleted, { hidden: true });
    if (pruned.length > 0) {
      await keepLatestCheckpoint(
        tx,
        pruned.map((threadId) => threadKey(deploymentId, threadId)),
      );
      // Once is enough until its next run.
      await tx.execute(
        'UPDATE agents.threads SET expires_at = NULL WHERE deployment_id = $1 AND thread_id = ANY ($2::uuid[])',
        [deploymentId, pruned],
      );
    }
    return rows.length;
  });
}
