import { dirname } from 'node:path/posix';
import { groupBy } from '../../infra/collections/group-by.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { joinKey } from '../../infra/objects/object-store.ts';
import type { Database } from '../../infra/postgres/database.ts';
import type { PageRequest } from '../../infra/postgres/list-page.ts';
import { type ExportFile, type ExportRunRecord, runColumns } from './checkpoint.ts';
import type { DestinationConfig } from './destinations/destination.ts';
import { buildManifestKey, buildPartKey, type ExportRecord, type ExportStatus, exportColumns } from './record.ts';

/** Progress of an export, summed over its export runs. */
interface ExportProgress {
  readonly runsTotal: number;
  readonly runsCompleted: number;
  readonly rowsWritten: number;
  readonly bytesWritten: number;
  readonly files: number;
  /** Total number of members of those export runs whose members have been counted. */
  readonly rowsCounted: number;
  readonly runsCounted: number;
  /** Completed fraction of each export run in millionths, summed over all export runs. */
  readonly millionthsDone: number;
  readonly lateRuns: number;
  readonly retries: number;
}

export type ExportWithProgress = ExportRecord & ExportProgress;

const million = 1_000_000;

/** SELECT and FROM clauses for exports with their progress. A WHERE clause can be appended. */
const exportsWithProgressSql = `SELECT ${exportColumns}, p.*, f.files
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

/** Reads an export with its progress. @throws NOT_FOUND if the workspace has no export with this id. */
export async function readExport(
  database: Database,
  workspaceId: string,
  exportId: string,
): Promise<ExportWithProgress> {
  const [found] = await database.query<ExportWithProgress>(
    `${exportsWithProgressSql} WHERE e.id = $1 AND e.workspace_id = $2`,
    [exportId, workspaceId],
  );
  if (found === undefined) throw runlakeError('NOT_FOUND', { what: 'Bulk export' });
  return found;
}

/**
 * Returns the progress of an export from 0 to 1; it is below 1 until the export is COMPLETED. Each export run (one day)
 * has the same weight, regardless of its number of rows. The rows of an export run are counted only after the run is
 * claimed, so the fraction of all rows counted so far would drop with each new count. The progress never drops, because
 * a further attempt neither removes rows that were written nor counts the rows again.
 */
export function computeCompletedShare({ status, millionthsDone, runsTotal }: ExportWithProgress): number {
  if (status === 'COMPLETED') return 1;
  // The progress is still below 1, because the manifest has not been written.
  return runsTotal === 0 ? 0 : Math.min(millionthsDone / (runsTotal * million), 0.99);
}

/**
 * Returns the number of rows per second and the estimated remaining time. Both are undefined if no rows have been
 * written yet.
 */
export function estimateRate(
  { startedAt, finishedAt, runsTotal, runsCounted, rowsCounted, rowsWritten }: ExportWithProgress,
  now: Date,
): { readonly rowsPerSecond: number | undefined; readonly secondsLeft: number | undefined } {
  if (startedAt === null || rowsWritten === 0) return { rowsPerSecond: undefined, secondsLeft: undefined };
  const end = finishedAt === null ? now.getTime() : Date.parse(finishedAt);
  const seconds = Math.max((end - Date.parse(startedAt)) / 1_000, 0.001);
  const rowsPerSecond = rowsWritten / seconds;
  // Export runs that have not been counted yet are assumed to have the average size.
  const expected = runsCounted === 0 ? rowsWritten : (rowsCounted / runsCounted) * runsTotal;
  const secondsLeft = finishedAt === null ? Math.max(0, expected - rowsWritten) / rowsPerSecond : undefined;
  return { rowsPerSecond, secondsLeft };
}

interface ExportFilter extends PageRequest {
  readonly statuses?: readonly ExportStatus[] | undefined;
  readonly destinationId?: string | undefined;
  readonly projectId?: string | undefined;
  /** If set, only exports that this schedule spawned are listed. */
  readonly sourceExportId?: string | undefined;
  /** If true, only schedules are listed; if false, only exports that are not schedules. */
  readonly scheduled?: boolean | undefined;
}

/** Lists the exports and schedules of a workspace, newest first. */
export function listExports(
  database: Database,
  workspaceId: string,
  filter: ExportFilter,
): Promise<ExportWithProgress[]> {
  const { statuses, destinationId, projectId, sourceExportId, scheduled, limit, offset } = filter;
  return database.query<ExportWithProgress>(
    `${exportsWithProgressSql}
     WHERE e.workspace_id = $1 AND ($2::text[] IS NULL OR e.status = ANY ($2))
       AND ($3::uuid IS NULL OR e.destination_id = $3) AND ($4::uuid IS NULL OR e.project_id = $4)
       AND ($5::uuid IS NULL OR e.source_bulk_export_id = $5)
       AND ($6::boolean IS NULL OR (e.interval_hours IS NOT NULL) = $6)
     ORDER BY e.created_at DESC, e.id DESC LIMIT $7 OFFSET $8`,
    [
      workspaceId,
      statuses ?? null,
      destinationId ?? null,
      projectId ?? null,
      sourceExportId ?? null,
      scheduled ?? null,
      limit,
      offset,
    ],
  );
}

/** An export run with the locations of its files. */
export interface ExportRunWithFiles extends ExportRunRecord {
  /** Number of complete files. */
  readonly fileCount: number;
  /** Paths of the first complete files, including the bucket, ordered by part number; see {@link maxListedPaths}. */
  readonly paths: readonly string[];
  /** The folder of the files of the export run, including the bucket. */
  readonly folder: string;
  /** The folder of the export, without the bucket. */
  readonly prefix: string;
}

interface ListedFile extends ExportFile {
  readonly createdAt: string;
}

type Row = ExportRunRecord & {
  readonly fileCount: number;
  readonly config: DestinationConfig;
};

/**
 * Maximum number of paths that are returned with export runs, for all export runs together. {@link listExportFiles}
 * returns all files in pages.
 */
export const maxListedPaths = 50_000;

/** Lists the export runs of one export, or of all exports that one schedule spawned, ordered by time. */
export async function listExportRuns(
  database: Database,
  workspaceId: string,
  parent: { readonly exportId: string } | { readonly sourceExportId: string },
  { limit, offset }: PageRequest,
): Promise<ExportRunWithFiles[]> {
  const [condition, id] =
    'exportId' in parent ? ['e.id = $2', parent.exportId] : ['e.source_bulk_export_id = $2', parent.sourceExportId];
  return find(database, `${condition} ORDER BY r.start_time, r.id LIMIT $3 OFFSET $4`, [
    workspaceId,
    id,
    limit,
    offset,
  ]);
}

/**
 * Reads an export run with the locations of its files.
 *
 * @throws NOT_FOUND if the workspace has no such export, or if the export has no such run.
 */
export async function readExportRun(
  database: Database,
  workspaceId: string,
  exportId: string,
  runId: string,
): Promise<ExportRunWithFiles> {
  const [found] = await find(database, 'e.id = $2 AND r.id = $3', [workspaceId, exportId, runId]);
  if (found === undefined) throw runlakeError('NOT_FOUND', { what: 'Bulk export run' });
  return found;
}

/** Lists the complete files of an export run, ordered by part number. @throws NOT_FOUND as {@link readExportRun}. */
export async function listExportFiles(
  database: Database,
  workspaceId: string,
  exportId: string,
  runId: string,
  { limit, offset }: PageRequest,
): Promise<ListedFile[]> {
  await readExportRun(database, workspaceId, exportId, runId);
  return database.query<ListedFile>(
    `SELECT part, path, rows, bytes, sha256, created_at AS "createdAt" FROM bulk_export_files
     WHERE bulk_export_run_id = $1 ORDER BY part LIMIT $2 OFFSET $3`,
    [runId, limit, offset],
  );
}

async function find(database: Database, condition: string, params: readonly unknown[]): Promise<ExportRunWithFiles[]> {
  const rows = await database.query<Row>(
    `SELECT ${runColumns}, d.config,
       (SELECT count(*) FROM bulk_export_files WHERE bulk_export_run_id = r.id)::int AS "fileCount"
     FROM bulk_export_runs AS r JOIN bulk_exports AS e ON e.id = r.bulk_export_id
       JOIN bulk_export_destinations AS d ON d.id = e.destination_id
     WHERE e.workspace_id = $1 AND ${condition}`,
    params,
  );
  if (rows.length === 0) return [];
  const exports = await database.query<ExportRecord>(
    `SELECT ${exportColumns} FROM bulk_exports AS e WHERE id = ANY ($1)`,
    [[...new Set(rows.map(({ exportId }) => exportId))]],
  );
  const byId = new Map(exports.map((each) => [each.id, each]));
  const paths = await listPaths(
    database,
    rows.map(({ id }) => id),
  );
  return rows.map(({ config, ...run }) => {
    const of = byId.get(run.exportId) as ExportRecord;
    const bucket = config.include_bucket_in_prefix ? (config.bucket_name ?? undefined) : undefined;
    return {
      ...run,
      paths: (paths.get(run.id) ?? []).map(({ path }) => path),
      folder: joinKey(bucket, config.prefix, dirname(buildPartKey(of, run, 1))),
      prefix: joinKey(config.prefix, dirname(buildManifestKey(of))),
    };
  });
}

interface ListedPath {
  readonly runId: string;
  readonly path: string;
}

/** Returns the paths of the first files of the export runs, at most {@link maxListedPaths}, by the id of the export run. */
async function listPaths(database: Database, runIds: readonly string[]): Promise<ReadonlyMap<string, ListedPath[]>> {
  const files = await database.query<ListedPath>(
    `SELECT page.id AS "runId", f.path
     FROM unnest($1::uuid[]) WITH ORDINALITY AS page (id, place) CROSS JOIN LATERAL (
       SELECT part, path FROM bulk_export_files WHERE bulk_export_run_id = page.id ORDER BY part LIMIT $2
     ) AS f
     ORDER BY page.place, f.part LIMIT $2`,
    [runIds, maxListedPaths],
  );
  return groupBy(files, ({ runId }) => runId);
}
