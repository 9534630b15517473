import { fault } from '../../infra/errors/runlake-error.ts';
import type { Database } from '../../infra/postgres/database.ts';
import { type ExportRecord, exportColumns } from './export-record.ts';

/** Sums over the runs of an export. */
export interface ExportProgress {
  readonly runsTotal: number;
  readonly runsCompleted: number;
  readonly rowsWritten: number;
  readonly bytesWritten: number;
  readonly files: number;
  /** Of the runs that were counted so far. */
  readonly rowsCounted: number;
  readonly runsCounted: number;
  readonly lateRuns: number;
  readonly retries: number;
}

export type ExportWithProgress = ExportRecord & ExportProgress;

/** Columns and source for reading exports together with their progress; conditions may follow. */
export const exportsWithProgress = `SELECT ${exportColumns}, p.*, f.files
  FROM bulk_exports AS e
  CROSS JOIN LATERAL (
    SELECT count(*) AS "runsTotal", count(*) FILTER (WHERE status = 'COMPLETED') AS "runsCompleted",
      coalesce(sum(rows_written), 0)::bigint AS "rowsWritten", coalesce(sum(bytes_written), 0)::bigint AS "bytesWritten",
      coalesce(sum(rows_total), 0)::bigint AS "rowsCounted", count(rows_total) AS "runsCounted",
      coalesce(sum(late_runs), 0)::bigint AS "lateRuns", coalesce(sum(retry_number), 0)::bigint AS retries
    FROM bulk_export_runs WHERE bulk_export_id = e.id
  ) AS p
  CROSS JOIN LATERAL (
    SELECT count(*) AS files FROM bulk_export_runs AS r JOIN bulk_export_files ON bulk_export_run_id = r.id
    WHERE r.bulk_export_id = e.id
  ) AS f`;

/** @throws NOT_FOUND where the workspace has no export of that id. */
export async function readExport(
  database: Database,
  workspaceId: string,
  exportId: string,
): Promise<ExportWithProgress> {
  const [found] = await database.query<ExportWithProgress>(
    `${exportsWithProgress} WHERE e.id = $1 AND e.workspace_id = $2`,
    [exportId, workspaceId],
  );
  if (found === undefined) throw fault('NOT_FOUND', { what: 'Bulk export' });
  return found;
}

/** How fast an export goes, and how long it will. Both undefined where nothing tells yet. */
export function paceOf(
  { startedAt, finishedAt, runsTotal, runsCounted, rowsCounted, rowsWritten }: ExportWithProgress,
  now: Date,
): { readonly rowsPerSecond: number | undefined; readonly secondsLeft: number | undefined } {
  if (startedAt === null || rowsWritten === 0) return { rowsPerSecond: undefined, secondsLeft: undefined };
  const end = finishedAt === null ? now.getTime() : Date.parse(finishedAt);
  const seconds = Math.max((end - Date.parse(startedAt)) / 1_000, 0.001);
  const rowsPerSecond = rowsWritten / seconds;
  // Runs that were not counted yet are taken to be as large as the others are on average.
  const expected = runsCounted === 0 ? rowsWritten : (rowsCounted / runsCounted) * runsTotal;
  const secondsLeft = finishedAt === null ? Math.max(0, expected - rowsWritten) / rowsPerSecond : undefined;
  return { rowsPerSecond, secondsLeft };
}
