import type { Database } from '../../../infra/postgres/database.ts';
import { type ExportRecord, exportColumns } from '../export-record.ts';
import { type ExportRunRecord, runColumns } from './run-record.ts';

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
