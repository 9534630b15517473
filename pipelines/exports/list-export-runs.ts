import { dirname } from 'node:path/posix';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { joinKey } from '../../infra/objects/object-key.ts';
import type { Database } from '../../infra/postgres/database.ts';
import type { DestinationConfig } from './destinations/destination-config.ts';
import { keyOfManifest, keyOfPart } from './export-locations.ts';
import { type ExportRecord, exportColumns } from './export-record.ts';
import { type ExportRunRecord, runColumns } from './runs/run-record.ts';

/** An export run with the location of its files. */
export interface ExportRunWithFiles extends ExportRunRecord {
  /** Paths of its complete files, in order of part, including the bucket. */
  readonly paths: readonly string[];
  /** The folder of its files, including the bucket. */
  readonly folder: string;
  /** The folder of its export, without the bucket. */
  readonly prefix: string;
}

export interface ExportFile {
  readonly part: number;
  readonly path: string;
  readonly rows: number;
  readonly bytes: number;
  readonly sha256: string;
  readonly createdAt: string;
}

export interface Page {
  readonly limit: number;
  readonly offset: number;
}

type Row = ExportRunRecord & {
  readonly paths: readonly string[];
  readonly config: DestinationConfig;
};

/** The export runs of one export, or of all exports that one schedule spawned, in order of time. */
export async function listExportRuns(
  database: Database,
  workspaceId: string,
  parent: { readonly exportId: string } | { readonly sourceExportId: string },
  { limit, offset }: Page,
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

/** @throws NOT_FOUND if the workspace has no such export, or the export has no such run. */
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

/** Complete files of an export run, in order of part. @throws NOT_FOUND as {@link readExportRun}. */
export async function listExportFiles(
  database: Database,
  workspaceId: string,
  exportId: string,
  runId: string,
  { limit, offset }: Page,
): Promise<ExportFile[]> {
  await readExportRun(database, workspaceId, exportId, runId);
  return database.query<ExportFile>(
    `SELECT part, path, rows, bytes, sha256, created_at AS "createdAt" FROM bulk_export_files
     WHERE bulk_export_run_id = $1 ORDER BY part LIMIT $2 OFFSET $3`,
    [runId, limit, offset],
  );
}

async function find(database: Database, condition: string, params: readonly unknown[]): Promise<ExportRunWithFiles[]> {
  const rows = await database.query<Row>(
    `SELECT ${runColumns}, d.config,
       ARRAY (SELECT path FROM bulk_export_files WHERE bulk_export_run_id = r.id ORDER BY part) AS paths
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
  return rows.map(({ config, ...run }) => {
    const of = byId.get(run.exportId) as ExportRecord;
    const bucket = config.include_bucket_in_prefix ? (config.bucket_name ?? undefined) : undefined;
    return {
      ...run,
      folder: joinKey(bucket, config.prefix, dirname(keyOfPart(of, run, 1))),
      prefix: joinKey(config.prefix, dirname(keyOfManifest(of))),
    };
  });
}
