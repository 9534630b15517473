/**
 * The end event of a graph run carries its final values, unless they are large. Large values are stored for some
 * minutes in the transaction that ends the run, because the next run soon overwrites the values of the thread.
 */
import type { Database, Sql } from '../../../infra/postgres/database.ts';
import type { EndedRun } from './run-row.ts';

const maxEventChars = 1024 * 1024;
/**
 * Long enough for waiting requests, which read the values when the end is published or after they have reattached to
 * the stream.
 */
const retentionMinutes = 5;

/** Whether the end event carries `json`. For a temporary run always, because its rows are deleted when it ends. */
export function fitsEndEvent({ temporary }: EndedRun['kwargs'], json: string | undefined): boolean {
  return temporary || json === undefined || json.length <= maxEventChars;
}

/** Copies values and interrupts from the row of the thread. Call it in the transaction that ends the run. */
export async function storeFinalValues(
  tx: Sql,
  { deploymentId, threadId, runId, interrupted = false }: EndedRun,
): Promise<void> {
  await tx.execute(
    `INSERT INTO agents.final_values (deployment_id, run_id, values, interrupts, expires_at)
     SELECT deployment_id, $3, values, CASE WHEN $4 THEN interrupts END, clock_timestamp() + $5 * interval '1 minute'
     FROM agents.threads WHERE deployment_id = $1 AND thread_id = $2`,
    [deploymentId, threadId, runId, interrupted, retentionMinutes],
  );
}

/** Deletes up to 100 expired final values. @returns how many it deleted. */
export function deleteExpiredFinalValues(database: Database, deploymentId: string): Promise<number> {
  return database.execute(
    `DELETE FROM agents.final_values WHERE (deployment_id, run_id) IN (
       SELECT deployment_id, run_id FROM agents.final_values
       WHERE deployment_id = $1 AND expires_at < clock_timestamp() LIMIT 100 FOR UPDATE SKIP LOCKED)`,
    [deploymentId],
  );
}
