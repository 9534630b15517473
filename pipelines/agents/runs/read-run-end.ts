import type { Sql } from '../../../infra/postgres/database.ts';
import type { Interrupt } from '../threads/thread.ts';
import type { RunStatus } from './run.ts';

export interface StoredRunEnd {
  readonly status: RunStatus;
  readonly error: { readonly error: string; readonly message: string } | null;
  /** JSON text of the final values of the run, if they were stored with it; else of the state of the thread now. */
  readonly values: string | null;
  /** What the graph waits for since then; null: it does not wait, or another run has gone on and nothing was stored with this one. */
  readonly interrupts: Readonly<Record<string, readonly Interrupt[]>> | null;
}

/** How a run ended, by its rows; undefined where there is none any more. Its status may also be one that is none of an end. */
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
