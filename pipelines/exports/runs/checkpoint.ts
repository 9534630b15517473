/**
 * What a worker writes about the run that it took up.
 *
 * Invariant: nothing is written but by the bearer of the run's last fence, and not after the run is over, so that a worker that
 * lost its lease, or whose export was cancelled, leaves the row as it is. A file is recorded together with the cursor that
 * stands behind it, or not at all: the files of a run always hold exactly the members up to its cursor.
 */
import { fault } from '../../../infra/errors/runlake-error.ts';
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
  /** Null if the store does not say. */
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

  /** Resolves while this attempt is the last one. */
  async confirm(): Promise<void> {
    await this.#write(this.#database, 'fence = fence', []);
  }

  /** Notes how many runs belong to it. @throws EXPORT_ATTEMPT_OVER, as all of them, and what the database throws. */
  async noteTotal(rows: number): Promise<void> {
    await this.#write(this.#database, 'rows_total = $4', [rows]);
  }

  /** Notes what is about to be written, before anything of it can be in the bucket. */
  async notePending(pending: PendingUpload): Promise<void> {
    await this.#write(this.#database, 'pending_upload = $4', [pending]);
  }

  /** Notes the id of the upload in parts, by which another worker can take it back. */
  async noteUpload(uploadId: string): Promise<void> {
    await this.#write(this.#database, "pending_upload = jsonb_set(pending_upload, '{uploadId}', to_jsonb($4::text))", [
      uploadId,
    ]);
  }

  /** Records a file that is whole in the bucket, and the cursor behind it. */
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

  /** Moves the cursor behind runs of which none is left. */
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
    if (written === 0) throw fault('EXPORT_ATTEMPT_OVER');
  }
}
