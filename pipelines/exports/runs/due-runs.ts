import type { Sql } from '../../../infra/postgres/database.ts';

export interface DueRun {
  readonly id: string;
  readonly exportId: string;
  readonly fence: number;
}

/**
 * Export runs that a worker can claim now: the first unfinished runs of each RUNNING export, up to the limit of
 * concurrent runs, except those that have a lease or wait for a retry.
 *
 * @param choice.newest If given, only the last `newest` of these first runs: those that became due because others ended.
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
       SELECT *, row_number() OVER (ORDER BY start_time) AS ordinal FROM bulk_export_runs
       WHERE bulk_export_id = e.id AND finished_at IS NULL ORDER BY start_time LIMIT $1
     ) AS r
     WHERE e.status = 'RUNNING' AND e.interval_hours IS NULL AND ($2::uuid IS NULL OR e.id = $2) AND r.ordinal > $1 - $3::int
       AND (r.lease_until IS NULL OR r.lease_until <= clock_timestamp())
       AND (r.attempt_started_at IS NOT NULL OR r.next_attempt_at <= $4)
     ORDER BY e.created_at, r.start_time`,
    [exportRunsAtOnce, choice.exportId ?? null, choice.newest ?? exportRunsAtOnce, now.toISOString()],
  );
}

export interface NextRun {
  readonly id: string;
  readonly organizationId: string;
  /** Export runs of the organisation that have a lease, over all processes. */
  readonly leases: number;
}

/** For each organisation the first of the export runs that {@link dueRuns} finds. */
export async function nextRuns(
  sql: Sql,
  { exportRunsAtOnce }: { readonly exportRunsAtOnce: number },
  now: Date,
): Promise<NextRun[]> {
  return sql.query<NextRun>(
    `WITH due AS (
       SELECT DISTINCT ON (w.organization_id) w.organization_id, r.id
       FROM bulk_exports AS e JOIN workspaces AS w ON w.id = e.workspace_id CROSS JOIN LATERAL (
         SELECT * FROM bulk_export_runs
         WHERE bulk_export_id = e.id AND finished_at IS NULL ORDER BY start_time LIMIT $1
       ) AS r
       WHERE e.status = 'RUNNING' AND e.interval_hours IS NULL
         AND (r.lease_until IS NULL OR r.lease_until <= clock_timestamp())
         AND (r.attempt_started_at IS NOT NULL OR r.next_attempt_at <= $2)
       ORDER BY w.organization_id, e.created_at, r.start_time
     ), leases AS (
       SELECT w.organization_id, count(*) AS held FROM bulk_export_runs AS r JOIN workspaces AS w ON w.id = r.workspace_id
       WHERE r.finished_at IS NULL AND r.lease_until > clock_timestamp() GROUP BY w.organization_id
     )
     SELECT due.id, due.organization_id AS "organizationId", coalesce(leases.held, 0)::int AS leases
     FROM due LEFT JOIN leases USING (organization_id)`,
    [exportRunsAtOnce, now.toISOString()],
  );
}
