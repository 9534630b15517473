import type { Database } from '../../../infra/postgres/database.ts';
import { keepLatestCheckpoint } from '../checkpoints/keep-latest-checkpoint.ts';
import { threadKey } from '../checkpoints/thread-key.ts';
import { removeThreads } from './delete-thread.ts';
import type { TtlStrategy } from './thread.ts';

/**
 * Deletes threads, or with `keep_latest` their history except the newest state. Ignores threads that do not exist and, with
 * `keep_latest`, busy threads.
 *
 * @returns how many threads were deleted or pruned.
 */
export async function pruneThreads(
  database: Database,
  deploymentId: string,
  { threadIds, strategy }: { readonly threadIds: readonly string[]; readonly strategy: TtlStrategy },
): Promise<number> {
  return database.transaction(async (tx) => {
    if (strategy === 'delete') return removeThreads(tx, deploymentId, threadIds);
    const rows = await tx.query<{ thread_id: string }>(
      `SELECT thread_id FROM agents.threads
       WHERE deployment_id = $1 AND thread_id = ANY ($2::uuid[]) AND NOT hidden AND status <> 'busy'
         AND (write_until IS NULL OR write_until <= clock_timestamp())
       ORDER BY thread_id FOR UPDATE`,
      [deploymentId, threadIds],
    );
    const keys = rows.map((row) => threadKey(deploymentId, row.thread_id));
    if (keys.length > 0) await keepLatestCheckpoint(tx, keys);
    return rows.length;
  });
}
