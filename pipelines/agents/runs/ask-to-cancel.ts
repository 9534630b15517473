import type { Sql } from '../../../infra/postgres/database.ts';
import type { CancelAction } from './run.ts';

/**
 * Stores the cancel request of a running run in its row and notifies the executors. Call it under the lock of the
 * thread. An interrupt does not replace a rollback that was requested before.
 */
export async function askToCancel(tx: Sql, deploymentId: string, runId: string, action: CancelAction): Promise<void> {
  await tx.execute(
    `UPDATE agents.runs SET cancel_action = CASE WHEN cancel_action = 'rollback' THEN 'rollback' ELSE $3 END
     WHERE deployment_id = $1 AND run_id = $2 AND status = 'running'`,
    [deploymentId, runId, action],
    { name: 'agents_ask_to_cancel' },
  );
  await tx.execute("SELECT pg_notify('agent_cancels', $1)", [deploymentId]);
}
