import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Database, Sql } from '../../../infra/postgres/database.ts';
import { askToCancel } from './ask-to-cancel.ts';
import { endWaitingRuns } from './end-waiting-runs.ts';
import { lockThread, updateThreadStatus } from './lock-thread.ts';
import type { CancelAction } from './run.ts';

/**
 * Cancels a run. A pending run ends now. For a running run the action is stored in its row, and `agents.end_run`
 * carries it out. `rollback` also deletes the run and what it wrote to the thread. Interrupting a run that has ended
 * does nothing.
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
    await cancelLocked(tx, deploymentId, { threadId, runIds: [runId] }, action);
  });
}

/**
 * Like {@link cancelRun} for several runs of a thread that `tx` has locked. @throws RUN_NOT_FOUND, RUN_ENDED; `tx` must
 * roll back then.
 */
export async function cancelLocked(
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
    if (status === 'running') await askToCancel(tx, deploymentId, run_id, action);
  }
  const cancelled = await endWaitingRuns(tx, deploymentId, threadId, {
    runIds: [...found],
    remove: action === 'rollback',
  });
  if (cancelled > 0) await updateThreadStatus(tx, deploymentId, threadId);
}
