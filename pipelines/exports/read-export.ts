import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Database } from '../../infra/postgres/database.ts';
import { type ExportRecord, exportColumns } from './export-record.ts';

/** Sums over the export runs of an export. */
export interface ExportProgress {
  readonly runsTotal: number;
  readonly runsCompleted: number;
  readonly rowsWritten: number;
  readonly bytesWritten: number;
  readonly files: number;
  /** Total members of the export runs that are already counted. */
  readonly rowsCounted: number;
  readonly runsCounted: number;
  /** Done share of each export run in millionths, summed over all runs. */
  readonly millionthsDone: number;
  readonly lateRuns: number;
  readonly retries: number;
}

export type ExportWithProgress = ExportRecord & ExportProgress;

const million = 1_000_000;

/** SELECT and FROM for exports with their progress; a WHERE clause may follow. */
export const exportsWithProgress = `SELECT ${exportColumns}, p.*, f.files
  FROM bulk_exports AS e
  CROSS JOIN LATERAL (
    SELECT count(*) AS "runsTotal", count(*) FILTER (WHERE status = 'COMPLETED') AS "runsCompleted",
      coalesce(sum(rows_written), 0)::bigint AS "rowsWritten", coalesce(sum(bytes_written), 0)::bigint AS "bytesWritten",
      coalesce(sum(rows_total), 0)::bigint AS "rowsCounted", count(rows_total) AS "runsCounted",
      -- In whole numbers: sums of others depend on their order.
      coalesce(sum(CASE WHEN status = 'COMPLETED' THEN ${million} WHEN rows_total > 0
        THEN least(rows_written * ${million} / rows_total, ${million}) ELSE 0 END), 0)::bigint AS "millionthsDone",
      coalesce(sum(late_runs), 0)::bigint AS "lateRuns", coalesce(sum(retry_number), 0)::bigint AS retries
    FROM bulk_export_runs WHERE bulk_export_id = e.id
  ) AS p
  CROSS JOIN LATERAL (
    SELECT count(*) AS files FROM bulk_export_runs AS r JOIN bulk_export_files ON bulk_export_run_id = r.id
    WHERE r.bulk_export_id = e.id
  ) AS f`;

/** @throws NOT_FOUND if the workspace has no export with this id. */
export async function readExport(
  database: Database,
  workspaceId: string,
  exportId: string,
): Promise<ExportWithProgress> {
  const [found] = await database.query<ExportWithProgress>(
    `${exportsWithProgress} WHERE e.id = $1 AND e.workspace_id = $2`,
    [exportId, workspaceId],
  );
  if (found === undefined) throw runlakeError('NOT_FOUND', { what: 'Bulk export' });
  return found;
}

/**
 * Progress of an export from 0 to 1; below 1 until it is COMPLETED. Each export run (one day) has the same weight,
 * whatever its number of rows: rows are only counted when a run is claimed, so a share of all rows counted so far would
 * fall with each new count. This value never falls, because another attempt neither removes rows that a run has written
 * nor counts its rows again.
 */
export function shareDone({ status, millionthsDone, runsTotal }: ExportWithProgress): number {
  if (status === 'COMPLETED') return 1;
  // The manifest is still missing.
  return runsTotal === 0 ? 0 : Math.min(millionthsDone / (runsTotal * million), 0.99);
}

/** Rows per second and estimated remaining time. Both undefined if nothing is written yet. */
export function paceOf(
  { startedAt, finishedAt, runsTotal, runsCounted, rowsCounted, rowsWritten }: ExportWithProgress,
  now: Date,
): { readonly rowsPerSecond: number | undefined; readonly secondsLeft: number | undefined } {
  if (startedAt === null || rowsWritten === 0) return { rowsPerSecond: undefined, secondsLeft: undefined };
  const end = finishedAt === null ? now.getTime() : Date.parse(finishedAt);
  const seconds = Math.max((end - Date.parse(startedAt)) / 1_000, 0.001);
  const rowsPerSecond = rowsWritten / seconds;
  // Export runs that are not counted yet are assumed to have the average size.
  const expected = runsCounted === 0 ? rowsWritten : (rowsCounted / runsCounted) * runsTotal;
  const secondsLeft = finishedAt === null ? Math.max(0, expected - rowsWritten) / rowsPerSecond : undefined;
  return { rowsPerSecond, secondsLeft };
}
