import { randomUUID } from 'node:crypto';
import type { Database } from '../../infra/postgres/pool.ts';

export interface ExportUnderTest {
  readonly destinationId: string;
  readonly exportId: string;
  readonly exportRunId: string;
}

/** Inserts an export with one run and one file directly into the tables; every text field contains `word`. */
export async function addExport(
  database: Database,
  { workspaceId, projectId, word }: { workspaceId: string; projectId: string; word: string },
): Promise<ExportUnderTest> {
  const [destinationId, exportId, exportRunId] = [randomUUID(), randomUUID(), randomUUID()];
  const config = {
    bucket_name: null,
    prefix: word,
    region: null,
    endpoint_url: null,
    include_bucket_in_prefix: true,
    config_kwargs_s3: null,
  };
  await database.execute(
    `INSERT INTO bulk_export_destinations (id, workspace_id, destination_type, display_name, config)
     VALUES ($1, $2, 'local', $3, $4)`,
    [destinationId, workspaceId, word, config],
  );
  await database.execute(
    `INSERT INTO bulk_exports (id, workspace_id, destination_id, project_id, start_time, end_time, format, format_version,
       compression, status, status_reason, members_until, started_at)
     VALUES ($1, $2, $3, $4, '2026-03-05', '2026-03-06', 'Parquet', 'v1', 'zstandard', 'RUNNING', $5, now(), now())`,
    [exportId, workspaceId, destinationId, projectId, word],
  );
  await database.execute(
    `INSERT INTO bulk_export_runs (id, bulk_export_id, workspace_id, start_time, end_time, status, fence, errors, rows_written)
     VALUES ($1, $2, $3, '2026-03-05', '2026-03-06', 'RUNNING', 1, $4, 7)`,
    [exportRunId, exportId, workspaceId, { retry_0: word }],
  );
  await database.execute(
    `INSERT INTO bulk_export_files (bulk_export_run_id, part, path, rows, bytes, sha256) VALUES ($1, 1, $2, 7, 70, 'ab')`,
    [exportRunId, `${word}/file.parquet`],
  );
  return { destinationId, exportId, exportRunId };
}
