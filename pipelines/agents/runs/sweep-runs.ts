import type { Database } from '../../../infra/postgres/database.ts';
import { processIsAlive, requeueRun } from './release-run.ts';

/** Requeues up to 100 runs of processes whose heartbeat has expired. @returns how many it found. */
export async function sweepRuns(database: Database, deploymentId: string): Promise<number> {
  const rows = await database.query<{ thread_id: string; run_id: string; lease_token: string }>(
    `SELECT thread_id, run_id, lease_token FROM agents.runs run
     WHERE deployment_id = $1 AND status = 'running' AND NOT ${processIsAlive} ORDER BY queue_position LIMIT 100`,
    [deploymentId],
    { name: 'agents_expired_runs' },
  );
  for (const { thread_id: threadId, run_id: runId, lease_token: leaseToken } of rows) {
    await database.transaction((tx) =>
      requeueRun(
        tx,
        { deploymentId, threadId, runId, leaseToken },
        { alone: false, countLoss: true, onlyExpired: true },
      ),
    );
  }
  return rows.length;
}
