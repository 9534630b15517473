import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Database, Sql } from '../../../infra/postgres/database.ts';
import type { RequiredMetadata } from '../auth/access-filter.ts';
import { endWaitingRuns } from './end-run.ts';
import { lockThread, updateThreadStatus } from './lock-thread.ts';
import type { CancelAction } from './run.ts';

/**
 * Stores the cancel request of a running run in its row and notifies the executors. Call it under the lock of the
 * thread. An interrupt does not replace a rollback that was requested before.
 */
export async function requestCancel(tx: Sql, deploymentId: string, runId: string, action: CancelAction): Promise<void> {
  await tx.execute(
    `UPDATE agents.runs SET cancel_action = CASE WHEN cancel_action = 'rollback' THEN 'rollback' ELSE $3 END
     WHERE deployment_id = $1 AND run_id = $2 AND status = 'running'`,
    [deploymentId, runId, action],
    { name: 'agents_ask_to_cancel' },
  );
  await tx.execute("SELECT pg_notify('agent_cancels', $1)", [deploymentId]);
}

/**
 * Cancels a run. A pending run ends at once. For a running run, this function stores the action in the row of the run,
 * and `agents.end_run` carries it out. `rollback` also deletes the run and what the run wrote to the thread.
 * Interrupting a run that has ended does nothing.
 *
 * @throws RUN_NOT_FOUND; RUN_ENDED for the rollback of an ended run, because later runs may depend on its state
 */
export async function cancelRun(
  database: Database,
  deploymentId: string,
  { threadId, runId }: { readonly threadId: string; readonly runId: string },
  action: CancelAction,
): Promise<void> {
  await database.transaction(async (tx) => {
    if ((await lockThread(tx, deploymentId, threadId)) === undefined)
      throw runlakeError('RUN_NOT_FOUND', { run: runId });
    await cancelLockedRuns(tx, deploymentId, { threadId, runIds: [runId] }, action);
  });
}

/**
 * Like {@link cancelRun}, for several runs of a thread that `tx` has locked. @throws RUN_NOT_FOUND, RUN_ENDED; the
 * caller must then roll back `tx`.
 */
async function cancelLockedRuns(
  tx: Sql,
  deploymentId: string,
  { threadId, runIds }: { readonly threadId: string; readonly runIds: readonly string[] },
  action: CancelAction,
): Promise<void> {
  const rows = await tx.query<{ run_id: string; status: string }>(
    `SELECT run_id, status FROM agents.runs
     WHERE deployment_id = $1 AND thread_id = $2 AND run_id = ANY ($3::uuid[]) AND NOT removed`,
    [deploymentId, threadId, runIds],
    { name: 'agents_runs_to_cancel' },
  );
  const found = new Set(rows.map(({ run_id }) => run_id));
  const missing = runIds.find((runId) => !found.has(runId.toLowerCase()));
  if (missing !== undefined) throw runlakeError('RUN_NOT_FOUND', { run: missing });
  const ended = rows.find(({ status }) => status !== 'pending' && status !== 'running');
  if (action === 'rollback' && ended) throw runlakeError('RUN_ENDED', { run: ended.run_id, status: ended.status });
  for (const { run_id, status } of rows) {
    if (status === 'running') await requestCancel(tx, deploymentId, run_id, action);
  }
  const cancelled = await endWaitingRuns(tx, deploymentId, threadId, {
    runIds: [...found],
    remove: action === 'rollback',
  });
  if (cancelled > 0) await updateThreadStatus(tx, deploymentId, threadId);
}

/** Named runs of one thread, or all runs with a status. */
type RunsToCancel =
  | { readonly threadId: string; readonly runIds: readonly string[] }
  | {
      readonly status: 'pending' | 'running' | 'all';
      /** Members that the metadata of the thread must contain. Default: runs of all threads. */
      readonly ofThreads?: RequiredMetadata | undefined;
    };

/**
 * Cancels several runs, in one transaction per thread.
 *
 * @throws THREAD_NOT_FOUND, RUN_NOT_FOUND, RUN_ENDED for named runs; then none of them is cancelled.
 */
export async function cancelRuns(
  database: Database,
  deploymentId: string,
  selection: RunsToCancel,
  action: CancelAction,
): Promise<void> {
  if ('threadId' in selection) {
    await database.transaction(async (tx) => {
      const thread = await lockThread(tx, deploymentId, selection.threadId);
      if (thread === undefined || thread.hidden) throw runlakeError('THREAD_NOT_FOUND', { thread: selection.threadId });
      await cancelLockedRuns(tx, deploymentId, selection, action);
    });
    return;
  }
  const statuses = selection.status === 'all' ? ['pending', 'running'] : [selection.status];
  const buildSelectRunsSql = (where: string) => `SELECT thread_id, run_id FROM agents.runs
    WHERE deployment_id = $1 AND status IN ('pending', 'running') AND status = ANY ($2::text[]) AND NOT removed ${where}`;
  const threadCondition = `AND EXISTS (SELECT FROM agents.threads thread WHERE thread.deployment_id = $1
    AND thread.thread_id = runs.thread_id AND thread.metadata @> $3)`;
  const rows = await database.query<{ thread_id: string }>(buildSelectRunsSql(threadCondition), [
    deploymentId,
    statuses,
    selection.ofThreads ?? {},
  ]);
  for (const threadId of new Set(rows.map(({ thread_id }) => thread_id))) {
    await database.transaction(async (tx) => {
      if ((await lockThread(tx, deploymentId, threadId)) === undefined) return;
      const now = await tx.query<{ run_id: string }>(buildSelectRunsSql('AND thread_id = $3'), [
        deploymentId,
        statuses,
        threadId,
      ]);
      await cancelLockedRuns(tx, deploymentId, { threadId, runIds: now.map(({ run_id }) => run_id) }, action);
    });
  }
}
