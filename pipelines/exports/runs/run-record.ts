import type { Database, Sql } from '../../../infra/postgres/database.ts';
import { type ExportRecord, exportColumns } from '../export-record.ts';
import type { ExportCursor } from '../export-scope.ts';
import type { ExportStatus } from '../export-states.ts';

/** A row of `bulk_export_runs`. Times are ISO 8601 with microseconds. */
export interface ExportRunRecord {
  readonly id: string;
  readonly exportId: string;
  readonly workspaceId: string;
  readonly startTime: string;
  readonly endTime: string;
  readonly status: ExportStatus;
  readonly fence: number;
  readonly retryNumber: number;
  /** `retry_0`, `retry_1`, …: the error of each failed attempt. */
  readonly errors: Readonly<Record<string, string>> | null;
  readonly rowsTotal: number | null;
  readonly rowsWritten: number;
  readonly bytesWritten: number;
  readonly lateRuns: number | null;
  readonly latestCursor: ExportCursor | null;
  readonly pendingUpload: PendingUpload | null;
  readonly attemptStartedAt: string | null;
  readonly nextAttemptAt: string;
  readonly createdAt: string;
  readonly updatedAt: string;
  readonly finishedAt: string | null;
}

/** A part that is about to be written, or was written but not recorded. */
export interface PendingUpload {
  readonly part: number;
  /** Null: from the start of the window. */
  readonly after: ExportCursor | null;
  readonly last: ExportCursor;
  readonly rows: number;
  readonly bytes: number;
  /** Including the bucket. */
  readonly path: string;
  /** Id of the multipart upload, if one was started. */
  readonly uploadId: string | null;
}

/** Select list of an {@link ExportRunRecord} from `bulk_export_runs AS r`. */
export const runColumns = `r.id, r.bulk_export_id AS "exportId", r.workspace_id AS "workspaceId",
  r.start_time AS "startTime", r.end_time AS "endTime", r.status, r.fence, r.retry_number AS "retryNumber", r.errors,
  r.rows_total AS "rowsTotal", r.rows_written AS "rowsWritten", r.bytes_written AS "bytesWritten",
  r.late_runs AS "lateRuns", r.latest_cursor AS "latestCursor", r.pending_upload AS "pendingUpload",
  r.attempt_started_at AS "attemptStartedAt", r.next_attempt_at AS "nextAttemptAt", r.created_at AS "createdAt",
  r.updated_at AS "updatedAt", r.finished_at AS "finishedAt"`;

/** A claimed export run, with the export it belongs to. */
export interface ClaimedRun {
  readonly run: ExportRunRecord;
  readonly of: ExportRecord;
  /** Number of the part after those that are recorded. */
  readonly nextPart: number;
}

/**
 * Claims a run: raises its fencing token, so that a previous worker can no longer write to the row, and starts its lease.
 *
 * Steps, in one transaction that locks the row of the export, so that claims for one export are serialised:
 *   1. Return undefined if the run is not due: the export is not RUNNING, the run has ended, another worker has a
 *      lease, or the run waits for a retry.
 *   2. Return undefined if as many runs of the export have a lease as `exportRunsAtOnce` allows.
 *   3. Set the fence and the lease. A claim after a crashed attempt costs no retry.
 *
 * Leases use only the clock of the database.
 *
 * @returns undefined if the run cannot be claimed now.
 */
export async function claimRun(
  database: Database,
  runId: string,
  limits: { readonly exportRunsAtOnce: number; readonly exportLeaseMs: number },
  now: Date,
): Promise<ClaimedRun | undefined> {
  const at = now.toISOString();
  return database.transaction(async (tx) => {
    const [of] = await tx.query<ExportRecord>(
      `SELECT ${exportColumns} FROM bulk_exports AS e
       WHERE id = (SELECT bulk_export_id FROM bulk_export_runs WHERE id = $1) AND status = 'RUNNING' FOR UPDATE`,
      [runId],
    );
    if (of === undefined) return undefined;
    const [due] = await tx.query(
      `SELECT FROM bulk_export_runs
       WHERE id = $1 AND status IN ('CREATED', 'RUNNING') AND (lease_until IS NULL OR lease_until <= clock_timestamp())
         AND (attempt_started_at IS NOT NULL OR next_attempt_at <= $2) FOR UPDATE`,
      [runId, at],
    );
    if (due === undefined) return undefined;
    const [{ busy } = { busy: 0 }] = await tx.query<{ busy: number }>(
      `SELECT count(*) AS busy FROM bulk_export_runs
       WHERE bulk_export_id = $1 AND finished_at IS NULL AND lease_until > clock_timestamp()`,
      [of.id],
    );
    if (busy >= limits.exportRunsAtOnce) return undefined;
    const [run] = await tx.query<ExportRunRecord & { nextPart: number }>(
      `UPDATE bulk_export_runs AS r SET status = 'RUNNING', fence = fence + 1, attempt_started_at = $2, updated_at = $2,
         lease_until = clock_timestamp() + make_interval(secs => $3)
       WHERE id = $1
       RETURNING ${runColumns}, (SELECT coalesce(max(part) + 1, 1) FROM bulk_export_files
         WHERE bulk_export_run_id = $1)::int AS "nextPart"`,
      [runId, at, limits.exportLeaseMs / 1_000],
    );
    if (run === undefined) return undefined;
    const { nextPart, ...rest } = run;
    return { run: rest, of, nextPart };
  });
}

interface DueRun {
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
