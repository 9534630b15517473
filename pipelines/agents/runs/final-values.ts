/**
 * The event that ends a graph run carries its final values, unless they are large. Large ones are stored with the run for some minutes, in
 * the transaction that ends it: the values of the thread are those of the next run soon after.
 */
import type { Database, Sql } from '../../../infra/postgres/database.ts';
import type { EndedRun } from './run-row.ts';

const maxEventChars = 1024 * 1024;
/** Requests that wait read them when the end is published, or after they have reattached to the stream. */
const keptMinutes = 5;

/** Whether the event that ends a run carries `json`. The rows of a temporary run are deleted at its end: its event carries everything. */
export function fitsEndEvent({ temporary }: EndedRun['kwargs'], json: string | undefined): boolean {
  return temporary || json === undefined || json.length <= maxEventChars;
}

/** Copies what the run left from the row of its thread. For the transaction that ended the run. */
export async function storeFinalValues(
  tx: Sql,
  { deploymentId, threadId, runId, interrupted = false }: EndedRun,
): Promise<void> {
  await tx.execute(
    `INSERT INTO agents.final_values (deployment_id, run_id, values, interrupts, expires_at)
     SELECT deployment_id, $3, values, CASE WHEN $4 THEN interrupts END, clock_timestamp() + $5 * interval '1 minute'
     FROM agents.threads WHERE deployment_id = $1 AND thread_id = $2`,
    [deploymentId, threadId, runId, interrupted, keptMinutes],
  );
}

/** Deletes final values that have expired, a bounded number. @returns how many. */
export function deleteExpiredFinalValues(database: Database, deploymentId: string): Promise<number> {
  return database.execute(
    `DELETE FROM agents.final_values WHERE (deployment_id, run_id) IN (
       SELECT deployment_id, run_id FROM agents.final_values
       WHERE deployment_id = $1 AND expires_at < clock_timestamp() LIMIT 100 FOR UPDATE SKIP LOCKED)`,
    [deploymentId],
  );
}
