import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Database } from '../../../infra/postgres/database.ts';
import { endWaitingRuns } from './end-waiting-runs.ts';
import { lockThread, updateThreadStatus } from './lock-thread.ts';

/**
 * Deletes a run, but not the state that it wrote to its thread. A pending run ends. A running one must be cancelled first.
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
