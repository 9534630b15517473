import type { Sql } from '../../../infra/postgres/database.ts';
import { type EndedRow, type EndedRun, endedColumns, toEndedRun } from './run-row.ts';

/**
 * Runs that ended and whose end is not in the log: at once those that no process executed at the end, else after `lateMs`, when the
 * process that ended them is taken to have died. Values only where the thread still shows what the run left.
 */
export async function unpublishedEnds(database: Sql, deploymentId: string, lateMs: number): Promise<EndedRun[]> {
  const rows = await database.query<
    EndedRow & { values_text: string | null; interrupts: NonNullable<EndedRun['interrupts']> | null }
  >(
    `SELECT ${endedColumns},
       CASE WHEN thread.starts = run.thread_start AND NOT run.removed THEN thread.values::text END AS values_text,
       CASE WHEN thread.starts = run.thread_start AND NOT run.removed AND run.status = 'success'
         AND thread.rest_status = 'interrupted' THEN thread.interrupts END AS interrupts
     FROM agents.runs run LEFT JOIN agents.threads thread USING (deployment_id, thread_id)
     WHERE run.deployment_id = $1 AND run.end_published = false
       AND (run.lease_token IS NULL OR run.ended_at < clock_timestamp() - $2 * interval '1 millisecond')
     ORDER BY run.ended_at LIMIT 100`,
    [deploymentId, lateMs],
    { name: 'agents_unpublished_ends' },
  );
  return rows.map((row) => ({
    ...toEndedRun(row, row.values_text),
    ...(row.interrupts && { interrupted: true, interrupts: row.interrupts }),
  }));
}
