import { fault } from '../../../infra/errors/runlake-error.ts';
import type { Database, Sql } from '../../../infra/postgres/database.ts';
import { askToCancel } from './ask-to-cancel.ts';
import { endWaitingRuns } from './end-waiting-runs.ts';
import { lockThread, settleThreadStatus } from './lock-thread.ts';
import type { CancelAction } from './run.ts';

/**
 * Stops a run: one that waits ends at once, one that runs is asked to stop. `rollback` takes it away with what it has stored. To one
 * that has ended nothing happens.
 *
 * @throws RUN_NOT_FOUND
 */
export async function cancelRun(
  database: Database,
  deploymentId: string,
  { threadId, runId }: { readonly threadId: string; readonly runId: string },
  action: CancelAction,
): Promise<void> {
  await database.transaction(async (tx) => {
    if ((await lockThread(tx, deploymentId, threadId)) === undefined) throw fault('RUN_NOT_FOUND', { run: runId });
    await cancelLocked(tx, deploymentId, { threadId, runIds: [runId] }, action);
  });
}

/** As {@link cancelRun}, for several runs of a thread that is locked. @throws RUN_NOT_FOUND where one is missing. */
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
  if (missing !== undefined) throw fault('RUN_NOT_FOUND', { run: missing });
  for (const { run_id, status } of rows) {
    if (status === 'running') await askToCancel(tx, deploymentId, run_id, action);
  }
  const ended = await endWaitingRuns(tx, deploymentId, threadId, {
    runIds: [...found],
    remove: action === 'rollback',
  });
  if (ended > 0) await settleThreadStatus(tx, deploymentId, threadId);
}
