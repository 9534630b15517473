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
