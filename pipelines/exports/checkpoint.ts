/**
 * The row of an export run, and all writes of a worker to it: claiming the run, recording its files, and ending the
 * attempt.
 *
 * Invariant: a write succeeds only with the latest fencing token and before the run has ended. Therefore a worker that
 * has lost its lease, or whose export was cancelled, cannot change the row. A file and the cursor after it are recorded
 * in one transaction, so the recorded files always contain exactly the members up to the cursor.
 */
import { formatWithRemedy, isRunlakeError, type RunlakeError, runlakeError } from '../../infra/errors/runlake-error.ts';
import { isWorthRetrying } from '../../infra/objects/object-store.ts';
import type { Sql } from '../../infra/postgres/database.ts';
import { type ClockDeps, type ExportDeps, readClock } from './export-deps.ts';
import type { ExportCursor } from './members.ts';
import { type ExportRecord, type ExportStatus, exportColumns } from './record.ts';
import { endExport, enqueueRun, enqueueWaitingExports, listPreviousStates } from './states.ts';

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
  /** Errors of the failed attempts, under the keys `retry_0`, `retry_1`, … */
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

/** A part that is about to be written, or that was written but not recorded. */
export interface PendingUpload {
  readonly part: number;
  /** Cursor before the chunk; null if the chunk begins at the start of the window. */
  readonly after: ExportCursor | null;
  readonly last: ExportCursor;
  readonly rows: number;
  readonly bytes: number;
  /** Path of the object, including the bucket. */
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

/** A claimed export run together with its export. */
export interface ClaimedExportRun {
  readonly run: ExportRunRecord;
  readonly of: ExportRecord;
  /** Number of the next part, which follows the recorded parts. */
  readonly nextPart: number;
}

/**
 * Claims a run: increments its fencing token, so that a previous worker can no longer write to the row, and starts its
 * lease.
 *
 * The steps run in one transaction that locks the row of the export, so that claims for one export are serialised:
 *   1. Return undefined if the run is not due: the export is not RUNNING, the run has ended, another worker has a
 *      lease, the run waits for a retry, or another transaction has locked its row.
 *   2. Return undefined if `exportRunsAtOnce` runs of the export already have a lease.
 *   3. Set the fencing token and the lease. A claim after a crashed attempt does not use up a retry.
 *
 * Leases and retries use only the clock of the database.
 *
 * @returns undefined if the run cannot be claimed now.
 */
export async function claimRun(
  deps: ClockDeps & { readonly limits: { readonly exportRunsAtOnce: number; readonly exportLeaseMs: number } },
  runId: string,
): Promise<ClaimedExportRun | undefined> {
  const { limits } = deps;
  return deps.database.transaction(async (tx) => {
    const [of] = await tx.query<ExportRecord>(
      `SELECT ${exportColumns} FROM bulk_exports AS e
       WHERE id = (SELECT bulk_export_id FROM bulk_export_runs WHERE id = $1) AND status = 'RUNNING' FOR UPDATE`,
      [runId],
    );
    if (of === undefined) return undefined;
    const at = (await readClock(deps, tx)).toISOString();
    const [due] = await tx.query(
      `SELECT FROM bulk_export_runs
       WHERE id = $1 AND status IN ('CREATED', 'RUNNING') AND (lease_until IS NULL OR lease_until <= clock_timestamp())
         AND (attempt_started_at IS NOT NULL OR next_attempt_at <= $2) FOR UPDATE SKIP LOCKED`,
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

/** A complete file of an export run. */
export interface ExportFile {
  readonly part: number;
  /** Path of the object, including the bucket. */
  readonly path: string;
  readonly rows: number;
  readonly bytes: number;
  readonly sha256: string;
}

interface WrittenPart extends ExportFile {
  /** ETag of the object; null if the store returns none. */
  readonly etag: string | null;
}

export class Checkpoint {
  readonly #deps: ClockDeps;
  readonly #run: Pick<ExportRunRecord, 'id' | 'fence'>;

  constructor(deps: ClockDeps, run: Pick<ExportRunRecord, 'id' | 'fence'>) {
    this.#deps = deps;
    this.#run = run;
  }

  /**
   * Checks that this attempt still owns the run. Like all methods of this class, it throws EXPORT_ATTEMPT_OVER if the
   * attempt no longer owns the run, and it throws errors of the database.
   */
  async confirm(): Promise<void> {
    await this.#write(this.#deps.database, 'fence = fence', []);
  }

  /** Records the number of members. */
  async recordTotal(rows: number): Promise<void> {
    await this.#write(this.#deps.database, 'rows_total = $4', [rows]);
  }

  /** Records the part that is about to be written. Call it before any byte of the part can be in the bucket. */
  async recordPendingUpload(pending: PendingUpload): Promise<void> {
    await this.#write(this.#deps.database, 'pending_upload = $4', [pending]);
  }

  /** Records the id of the multipart upload, so that another worker can abort it. */
  async recordUpload(uploadId: string): Promise<void> {
    await this.#write(
      this.#deps.database,
      "pending_upload = jsonb_set(pending_upload, '{uploadId}', to_jsonb($4::text))",
      [uploadId],
    );
  }

  /** Records a file that is complete in the bucket, and moves the cursor past it. */
  async recordFile({ part, path, rows, bytes, sha256, etag }: WrittenPart, cursor: ExportCursor): Promise<void> {
    await this.#deps.database.transaction(async (tx) => {
      await this.#write(
        tx,
        `rows_written = rows_written + $4, bytes_written = bytes_written + $5, latest_cursor = $6, pending_upload = NULL`,
        [rows, bytes, cursor],
      );
      await tx.execute(
        `INSERT INTO bulk_export_files (bulk_export_run_id, part, path, rows, bytes, sha256, etag, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
        [this.#run.id, part, path, rows, bytes, sha256, etag, await this.#readClock(tx)],
      );
    });
  }

  /** Moves the cursor past a chunk whose runs were all deleted. */
  async skipTo(cursor: ExportCursor): Promise<void> {
    await this.#write(this.#deps.database, 'latest_cursor = $4, pending_upload = NULL', [cursor]);
  }

  async complete({ lateRuns }: { readonly lateRuns: number }): Promise<void> {
    await this.#write(
      this.#deps.database,
      `status = 'COMPLETED', finished_at = $3, late_runs = $4, lease_until = NULL, attempt_started_at = NULL`,
      [lateRuns],
      listPreviousStates('run', 'COMPLETED'),
    );
  }

  async #readClock(sql: Sql): Promise<string> {
    return (await readClock(this.#deps, sql)).toISOString();
  }

  async #write(sql: Sql, assignments: string, values: readonly unknown[], from = ['RUNNING']): Promise<void> {
    const states = from.map((state) => `'${state}'`).join(', ');
    const written = await sql.execute(
      `UPDATE bulk_export_runs SET ${assignments}, updated_at = $3
       WHERE id = $1 AND fence = $2 AND status IN (${states})`,
      [this.#run.id, this.#run.fence, await this.#readClock(sql), ...values],
    );
    if (written === 0) throw runlakeError('EXPORT_ATTEMPT_OVER');
  }
}

type EndAttemptDeps = Pick<ExportDeps, 'database' | 'jobs' | 'logger' | 'now' | 'limits'>;

export type AttemptOutcome = 'retried' | 'failed' | 'over' | 'released';

/**
 * Records the outcome of an attempt that did not complete its export run, and whether a retry follows. Every write
 * checks the fencing token.
 *
 *   - If the attempt is over because its export has ended or another worker has claimed the run, nothing is written.
 *   - If the process is stopping, the run is released and can be claimed at once; this does not use up a retry.
 *   - If the caller caused the error (for example a missing bucket) or the retries are used up, the run and its export
 *     become FAILED in one transaction.
 *   - After any other error, which may be transient, the run waits for its next attempt.
 *
 * @throws errors of the database; in this case the lease expires, and the run is claimed again without using up a
 *   retry.
 */
export async function endAttempt(deps: EndAttemptDeps, run: ExportRunRecord, reason: unknown): Promise<AttemptOutcome> {
  const error = isRunlakeError(reason) ? reason : runlakeError('INTERNAL', {}, { cause: reason });
  if (error.code === 'EXPORT_ATTEMPT_OVER') return 'over';
  const { logger, limits } = deps;
  if (error.code === 'DRAINING') return release(deps, run);
  const about = { err: error, exportId: run.exportId, runId: run.id, retryNumber: run.retryNumber };
  if (!isWorthRetrying(error) || run.retryNumber >= limits.exportRetries) {
    logger.error(about, 'a bulk export run failed');
    return fail(deps, run, error);
  }
  logger.warn(about, 'an attempt at a bulk export run failed; it will be retried');
  return retry(deps, run, error);
}

async function release(deps: EndAttemptDeps, run: ExportRunRecord): Promise<AttemptOutcome> {
  const released = await deps.database.execute(
    `UPDATE bulk_export_runs SET lease_until = NULL, attempt_started_at = NULL, next_attempt_at = $3, updated_at = $3
     WHERE id = $1 AND fence = $2 AND status = 'RUNNING'`,
    [run.id, run.fence, (await readClock(deps)).toISOString()],
  );
  if (released === 0) return 'over';
  await enqueueRun(deps, run);
  return 'released';
}

async function retry(deps: EndAttemptDeps, run: ExportRunRecord, error: RunlakeError): Promise<AttemptOutcome> {
  const delayMs = deps.limits.exportRetryDelayMs;
  const now = await readClock(deps);
  const updated = await deps.database.execute(
    `UPDATE bulk_export_runs SET retry_number = retry_number + 1, errors = coalesce(errors, '{}') || $3,
       lease_until = NULL, attempt_started_at = NULL, next_attempt_at = $4, updated_at = $5
     WHERE id = $1 AND fence = $2 AND status = 'RUNNING'`,
    [
      run.id,
      run.fence,
      createErrorEntry(run, error),
      new Date(now.getTime() + delayMs).toISOString(),
      now.toISOString(),
    ],
  );
  if (updated === 0) return 'over';
  await enqueueRun(deps, run, delayMs);
  return 'retried';
}

async function fail(deps: EndAttemptDeps, run: ExportRunRecord, error: RunlakeError): Promise<AttemptOutcome> {
  const now = await readClock(deps);
  const workspaceId = await deps.database.transaction(async (tx) => {
    // Lock the export first and then its runs, in the same order as everywhere else.
    await tx.query('SELECT FROM bulk_exports WHERE id = $1 FOR UPDATE', [run.exportId]);
    const updated = await tx.execute(
      `UPDATE bulk_export_runs SET status = 'FAILED', errors = coalesce(errors, '{}') || $3, lease_until = NULL,
         attempt_started_at = NULL, updated_at = $4, finished_at = $4
       WHERE id = $1 AND fence = $2 AND status = 'RUNNING'`,
      [run.id, run.fence, createErrorEntry(run, error), now.toISOString()],
    );
    if (updated === 0) return undefined;
    const reason = `The export run of ${run.startTime.slice(0, 10)} failed: ${formatWithRemedy(error)}`;
    return endExport(tx, run.exportId, { to: 'FAILED', reason }, now);
  });
  if (workspaceId === undefined) return 'over';
  await enqueueWaitingExports(deps, workspaceId);
  return 'failed';
}

/**
 * Formats an entry of `errors`. It contains the code and the message of the error but not its cause, which may contain
 * secrets.
 */
function createErrorEntry({ retryNumber }: ExportRunRecord, error: RunlakeError): Record<string, string> {
  return { [`retry_${retryNumber}`]: formatWithRemedy(error) };
}
