import type { Sql } from '../../../infra/postgres/database.ts';
import type { Interrupt } from '../threads/thread.ts';
import type { RunStatus } from './run.ts';

export interface StoredRunEnd {
  readonly status: RunStatus;
  readonly error: { readonly error: string; readonly message: string } | null;
  /** The state of the thread now, as JSON text. */
  readonly values: string | null;
  /** What the graph waits for since then; null: it does not wait, or another run has gone on. */
  readonly interrupts: Readonly<Record<string, readonly Interrupt[]>> | null;
}

/** How a run ended, by its rows; undefined where there is none any more. Its status may also be one that is none of an end. */
export async function readRunEnd(
  sql: Sql,
  deploymentId: string,
  run: { readonly threadId: string; readonly runId: string },
): Promise<StoredRunEnd | undefined> {
  const rows = await sql.query<StoredRunEnd>(
    `SELECT run.status, run.error, CASE WHEN run.status NOT IN ('pending', 'running') THEN thread.values::text END AS values,
       CASE WHEN run.status = 'success' AND thread.starts = run.thread_start AND thread.rest_status = 'interrupted'
         THEN thread.interrupts END AS interrupts
     FROM agents.runs run
     JOIN agents.threads thread USING (deployment_id, thread_id)
     WHERE run.deployment_id = $1 AND run.thread_id = $2 AND run.run_id = $3`,
    [deploymentId, run.threadId, run.runId],
    { name: 'agents_run_end' },
  );
  return rows[0];
}
