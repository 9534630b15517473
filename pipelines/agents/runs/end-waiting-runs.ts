import type { Sql } from '../../../infra/postgres/database.ts';
import { rollbackCheckpoints } from '../checkpoints/rollback-checkpoints.ts';
import { threadKey } from '../checkpoints/thread-key.ts';
import { recordWebhook } from '../webhooks/record-webhook.ts';
import type { RunKwargs } from './run.ts';

/**
 * Ends the pending runs of a thread as interrupted. Call it under the lock of the thread. With `remove` the runs are
 * hidden from clients, and checkpoints of their earlier attempts are rolled back. Notifies the executors, which publish
 * the ends.
 *
 * @returns how many runs ended.
 */
export async function endWaitingRuns(
  tx: Sql,
  deploymentId: string,
  threadId: string,
  {
    runIds,
    remove,
  }: { /** Default: all pending runs. */ readonly runIds?: readonly string[]; readonly remove: boolean },
): Promise<number> {
  const rows = await tx.query<{ run_id: string; attempt: number; kwargs: RunKwargs }>(
    `UPDATE agents.runs run SET status = 'interrupted', removed = $4, lease_token = NULL,
       ended_at = clock_timestamp(), updated_at = clock_timestamp(), end_published = false
     WHERE deployment_id = $1 AND thread_id = $2 AND status = 'pending' AND ($3::uuid[] IS NULL OR run_id = ANY ($3))
     RETURNING run_id, attempt, kwargs`,
    [deploymentId, threadId, runIds ?? null, remove],
    { name: 'agents_end_waiting' },
  );
  if (rows.length === 0) return 0;
  for (const row of rows) {
    if (remove && row.attempt > 0) await rollbackCheckpoints(tx, threadKey(deploymentId, threadId), row.run_id);
    await recordWebhook(tx, { deploymentId, runId: row.run_id, webhook: row.kwargs.webhook });
  }
  await tx.execute("SELECT pg_notify('agent_ends', $1)", [deploymentId]);
  return rows.length;
}
