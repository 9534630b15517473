import type { Database } from '../../../infra/postgres/database.ts';
import { type ExportRecord, exportColumns } from '../export-record.ts';
import { type ExportRunRecord, runColumns } from './run-record.ts';

/** A run as the worker has it that took it up, with the export it belongs to. */
export interface TakenRun {
  readonly run: ExportRunRecord;
  readonly of: ExportRecord;
  /** Number of the part that comes after those that are recorded. */
  readonly nextPart: number;
}

/**
 * Takes a run up: raises its fence, so that whoever had it before can write nothing more, and begins its lease.
 *
 * Steps, in one transaction that holds the row of the export, by which workers of one export decide one after the other:
 *   1. Nobody works on it: the export is not RUNNING, the run is over, another worker has it, or it waits for its next attempt.
 *   2. Nobody more may: as many runs of the export as may are being worked on.
 *   3. Fence and lease. An attempt that a crash ended is gone on with, and costs no retry.
 *
 * Leases are told by the clock of the database alone.
 * @returns undefined where it is not to be worked on now.
 */
export async function takeRun(
  database: Database,
  runId: string,
  limits: { readonly exportRunsAtOnce: number; readonly exportLeaseMs: number },
  now: Date,
): Promise<TakenRun | undefined> {
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
