import type { Sql } from '../../../infra/postgres/database.ts';
import { type EndedRow, type EndedRun, endedColumns, toEndedRun } from './run-row.ts';

/**
 * Claims up to 100 ended runs whose end is not in the event log, so that this process publishes them. A run that ended
 * without a lease can be claimed at once; other runs `claimMs` after their end, because the process that ended them has
 * probably died. A claim expires after `claimMs` as well. Returns values and interrupts only if no later run has
 * changed the thread.
 */
export async function claimUnpublishedEnds(database: Sql, deploymentId: string, claimMs: number): Promise<EndedRun[]> {
  const rows = await database.query<
    EndedRow & { values_text: string | null; interrupts: NonNullable<EndedRun['interrupts']> | null }
  >(
    `WITH claimed AS MATERIALIZED (
       SELECT run_id FROM agents.runs
       WHERE deployment_id = $1 AND end_published = false
         AND (lease_token IS NULL OR ended_at < clock_timestamp() - $2 * interval '1 millisecond')
         AND (end_claimed_until IS NULL OR end_claimed_until <= clock_timestamp())
       ORDER BY ended_at LIMIT 100
       FOR UPDATE SKIP LOCKED
     ),
     run AS (
       UPDATE agents.runs SET end_claimed_until = clock_timestamp() + $2 * interval '1 millisecond'
       WHERE deployment_id = $1 AND run_id IN (SELECT run_id FROM claimed)
       RETURNING *
     )
     SELECT ${endedColumns},
       CASE WHEN thread.starts = run.thread_start AND NOT run.removed THEN thread.values::text END AS values_text,
       CASE WHEN thread.starts = run.thread_start AND NOT run.removed AND run.status = 'success'
         AND thread.rest_status = 'interrupted' THEN thread.interrupts END AS interrupts
     FROM run LEFT JOIN agents.threads thread USING (deployment_id, thread_id)
     ORDER BY run.ended_at`,
    [deploymentId, claimMs],
    { name: 'agents_claim_unpublished_ends' },
  );
  return rows.map((row) => ({
    ...toEndedRun(row, row.values_text),
    ...(row.interrupts && { interrupted: true, interrupts: row.interrupts }),
  }));
}
