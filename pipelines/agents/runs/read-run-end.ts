import type { Sql } from '../../../infra/postgres/database.ts';
import type { Interrupt } from '../threads/thread.ts';
import type { RunStatus } from './run.ts';

export interface StoredRunEnd {
  readonly status: RunStatus;
  readonly error: { readonly error: string; readonly message: string } | null;
  /** JSON text of the final values of the run if they are stored, otherwise of the current values of the thread. */
  readonly values: string | null;
  /**
   * The interrupts that the run ended with, by task; null if it ended without, or if a later run has started and none
   * are stored.
   */
  readonly interrupts: Readonly<Record<string, readonly Interrupt[]>> | null;
}

/** Reads how a run ended. Undefined if its row no longer exists. The run can also be unfinished; check the status. */
export async function readRunEnd(
  sql: Sql,
  deploymentId: string,
  run: { readonly threadId: string; readonly runId: string },
): Promise<StoredRunEnd | undefined> {
  const rows = await sql.query<StoredRunEnd>(
    `SELECT run.status, run.error, CASE WHEN final.run_id IS NOT NULL THEN final.values::text
         WHEN run.status NOT IN ('pending', 'running') THEN thread.values::text END AS values,
       CASE WHEN final.run_id IS NOT NULL THEN final.interrupts
         WHEN run.status = 'success' AND thread.starts = run.thread_start AND thread.rest_status = 'interrupted'
         THEN thread.interrupts END AS interrupts
     FROM agents.runs run
     JOIN agents.threads thread USING (deployment_id, thread_id)
     LEFT JOIN agents.final_values final USING (deployment_id, run_id)
     WHERE run.deployment_id = $1 AND run.thread_id = $2 AND run.run_id = $3`,
    [deploymentId, run.threadId, run.runId],
    { name: 'agents_run_end' },
  );
  return rows[0];
}
