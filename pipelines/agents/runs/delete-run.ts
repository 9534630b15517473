import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Database, Sql } from '../../../infra/postgres/database.ts';
import { recordWebhook } from '../webhooks/webhook-rules.ts';
import { endWaitingRuns, liveProcessCondition, requeueRun } from './end-run.ts';
import { lockThread, updateThreadStatus } from './lock-thread.ts';
import type { RunKwargs } from './run.ts';

/**
 * Deletes a run, but not the state that it wrote to its thread. A pending run ends. A running run must be cancelled
 * first.
 *
 * @throws RUN_NOT_FOUND; THREAD_BUSY if the run is running.
 */
export async function deleteRun(
  database: Database,
  deploymentId: string,
  { threadId, runId }: { readonly threadId: string; readonly runId: string },
): Promise<void> {
  await database.transaction(async (tx) => {
    await lockThread(tx, deploymentId, threadId);
    const [run] = await tx.query<{ status: string }>(
      'SELECT status FROM agents.runs WHERE deployment_id = $1 AND thread_id = $2 AND run_id = $3 AND NOT removed',
      [deploymentId, threadId, runId],
    );
    if (run === undefined) throw runlakeError('RUN_NOT_FOUND', { run: runId });
    if (run.status === 'running') throw runlakeError('THREAD_BUSY', { thread: threadId });
    await endWaitingRuns(tx, deploymentId, threadId, { runIds: [runId], remove: true });
    const ids = [deploymentId, runId];
    await tx.execute('DELETE FROM agents.runs WHERE deployment_id = $1 AND run_id = $2 AND end_published', ids);
    await tx.execute('UPDATE agents.runs SET removed = true WHERE deployment_id = $1 AND run_id = $2', ids);
    await updateThreadStatus(tx, deploymentId, threadId);
  });
}

/**
 * Removes the runs of threads, or only those of an assistant. The caller must have locked the threads. Pending and
 * running runs end as interrupted and call their webhooks; a process that executes such a run loses the lease and stops
 * the run. Clients no longer see the runs. The row of a run stays until the end of the run is in the event log, so that
 * readers of the stream receive the end.
 */
export async function removeRuns(
  tx: Sql,
  deploymentId: string,
  threadIds: readonly string[],
  assistantId?: string,
): Promise<void> {
  const runCondition =
    'deployment_id = $1 AND thread_id = ANY ($2::uuid[]) AND ($3::uuid IS NULL OR assistant_id = $3)';
  const params = [deploymentId, threadIds, assistantId ?? null];
  await tx.execute(`DELETE FROM agents.runs WHERE ${runCondition} AND end_published`, params);
  // All transactions lock runs in this order, which prevents deadlocks.
  const unfinished = `status IN ('pending', 'running')`;
  const runs = await tx.query<{ run_id: string; unfinished_kwargs: RunKwargs | null }>(
    `SELECT run_id, CASE WHEN ${unfinished} THEN kwargs END AS unfinished_kwargs
     FROM agents.runs WHERE ${runCondition} ORDER BY run_id FOR UPDATE`,
    params,
  );
  await tx.execute(
    `UPDATE agents.runs SET removed = true, end_published = false, ended_at = coalesce(ended_at, clock_timestamp()),
       updated_at = clock_timestamp(),
       lease_token = CASE WHEN ${unfinished} THEN NULL ELSE lease_token END,
       status = CASE WHEN ${unfinished} THEN 'interrupted' ELSE status END,
       graph_before = CASE WHEN attempt = 0 THEN graph_before END,
       config_before = CASE WHEN attempt = 0 THEN config_before END
     WHERE ${runCondition}`,
    params,
  );
  for (const { run_id: runId, unfinished_kwargs: kwargs } of runs)
    await recordWebhook(tx, { deploymentId, runId, kwargs });
  if (runs.length > 0)
    await tx.execute("SELECT pg_notify('agent_cancels', $1), pg_notify('agent_ends', $1)", [deploymentId]);
}

/**
 * Requeues up to 100 runs of processes whose heartbeat has expired. @returns how many it found.
 *
 * @throws the last error of a run that could not be requeued, after it has requeued the others.
 */
export async function sweepRuns(database: Database, deploymentId: string): Promise<number> {
  const rows = await database.query<{ thread_id: string; run_id: string; lease_token: string }>(
    `SELECT thread_id, run_id, lease_token FROM agents.runs run
     WHERE deployment_id = $1 AND status = 'running' AND NOT ${liveProcessCondition} ORDER BY queue_position LIMIT 100`,
    [deploymentId],
    { name: 'agents_expired_runs' },
  );
  let failure: { readonly reason: unknown } | undefined;
  for (const { thread_id: threadId, run_id: runId, lease_token: leaseToken } of rows) {
    const run = { deploymentId, threadId, runId, leaseToken };
    try {
      await database.transaction((tx) => requeueRun(tx, run, { alone: false, countsAsLost: true, onlyExpired: true }));
    } catch (reason) {
      failure = { reason };
    }
  }
  if (failure !== undefined) throw failure.reason;
  return rows.length;
}
