/**
 * Writes of a worker to the row of its export run.
 *
 * Invariant: a write succeeds only with the latest fencing token and before the run has ended, so that a worker that
 * lost its lease, or whose export was cancelled, cannot change the row. A file and the cursor after it are recorded in
 * one transaction: the recorded files always contain exactly the members up to the cursor.
 */
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Database, Sql } from '../../../infra/postgres/database.ts';
import type { ExportCursor } from '../export-scope.ts';
import { statesBefore } from '../export-states.ts';
import type { ExportRunRecord, PendingUpload } from './run-record.ts';

export interface WrittenPart {
  readonly part: number;
  readonly path: string;
  readonly rows: number;
  readonly bytes: number;
  readonly sha256: string;
  /** Null if the store returns none. */
  readonly etag: string | null;
}

export interface RunEnd {
  readonly lateRuns: number;
}

export class Checkpoint {
  readonly #database: Database;
  readonly #run: Pick<ExportRunRecord, 'id' | 'fence'>;
  readonly #now: () => Date;

  constructor(database: Database, run: Pick<ExportRunRecord, 'id' | 'fence'>, now: () => Date) {
    this.#database = database;
    this.#run = run;
    this.#now = now;
  }

  /**
   * Resolves while this attempt owns the run. Like all methods here it throws EXPORT_ATTEMPT_OVER otherwise, and errors
   * of the database.
   */
  async confirm(): Promise<void> {
    await this.#write(this.#database, 'fence = fence', []);
  }

  /** Records the number of members. */
  async recordTotal(rows: number): Promise<void> {
    await this.#write(this.#database, 'rows_total = $4', [rows]);
  }

  /** Records the part that is about to be written, before any byte of it can be in the bucket. */
  async recordPending(pending: PendingUpload): Promise<void> {
    await this.#write(this.#database, 'pending_upload = $4', [pending]);
  }

  /** Records the id of the multipart upload, so that another worker can abort it. */
  async recordUpload(uploadId: string): Promise<void> {
    await this.#write(this.#database, "pending_upload = jsonb_set(pending_upload, '{uploadId}', to_jsonb($4::text))", [
      uploadId,
    ]);
  }

  /** Records a file that is complete in the bucket, and the cursor after it. */
  async recordFile({ part, path, rows, bytes, sha256, etag }: WrittenPart, cursor: ExportCursor): Promise<void> {
    await this.#database.transaction(async (tx) => {
      await this.#write(
        tx,
        `rows_written = rows_written + $4, bytes_written = bytes_written + $5, latest_cursor = $6, pending_upload = NULL`,
        [rows, bytes, cursor],
      );
      await tx.execute(
        `INSERT INTO bulk_export_files (bulk_export_run_id, part, path, rows, bytes, sha256, etag, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
        [this.#run.id, part, path, rows, bytes, sha256, etag, this.#now().toISOString()],
      );
    });
  }

  /** Moves the cursor past a slice whose runs were all deleted. */
  async skipTo(cursor: ExportCursor): Promise<void> {
    await this.#write(this.#database, 'latest_cursor = $4, pending_upload = NULL', [cursor]);
  }

  /** Ends the run as COMPLETED. */
  async complete({ lateRuns }: RunEnd): Promise<void> {
    await this.#write(
      this.#database,
      `status = 'COMPLETED', finished_at = $3, late_runs = $4, lease_until = NULL, attempt_started_at = NULL`,
      [lateRuns],
      statesBefore('run', 'COMPLETED'),
    );
  }

  async #write(sql: Sql, assignments: string, values: readonly unknown[], from = ['RUNNING']): Promise<void> {
    const states = from.map((state) => `'${state}'`).join(', ');
    const written = await sql.execute(
      `UPDATE bulk_export_runs SET ${assignments}, updated_at = $3
       WHERE id = $1 AND fence = $2 AND status IN (${states})`,
      [this.#run.id, this.#run.fence, this.#now().toISOString(), ...values],
    );
    if (written === 0) throw runlakeError('EXPORT_ATTEMPT_OVER');
  }
}
