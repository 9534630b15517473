import type { Sql } from '../../../infra/postgres/database.ts';

export interface DueRun {
  readonly id: string;
  readonly exportId: string;
  readonly fence: number;
}

/**
 * Runs that a worker could take up now: of each RUNNING export the first ones that are not over, as many as may be worked on at
 * once, less those that a worker has or that wait for their next attempt.
 *
 * @param choice.newest only so many of the last of those first ones, the newcomers when others are over.
 */
export function dueRuns(
  sql: Sql,
  { exportRunsAtOnce }: { readonly exportRunsAtOnce: number },
  now: Date,
  choice: { readonly exportId?: string; readonly newest?: number } = {},
): Promise<DueRun[]> {
  return sql.query<DueRun>(
    `SELECT r.id, r.bulk_export_id AS "exportId", r.fence
     FROM bulk_exports AS e CROSS JOIN LATERAL (
       SELECT *, row_number() OVER (ORDER BY start_time) AS place FROM bulk_export_runs
       WHERE bulk_export_id = e.id AND finished_at IS NULL ORDER BY start_time LIMIT $1
     ) AS r
     WHERE e.status = 'RUNNING' AND e.interval_hours IS NULL AND ($2::uuid IS NULL OR e.id = $2) AND r.place > $1 - $3::int
       AND (r.lease_until IS NULL OR r.lease_until <= clock_timestamp())
       AND (r.attempt_started_at IS NOT NULL OR r.next_attempt_at <= $4)
     ORDER BY e.created_at, r.start_time`,
    [exportRunsAtOnce, choice.exportId ?? null, choice.newest ?? exportRunsAtOnce, now.toISOString()],
  );
}
