import { Type } from 'typebox';
import { Dictionary } from '../../infra/json/dictionary.ts';
import type { ExportCursor } from '../../pipelines/exports/members.ts';
import {
  type ExportRunWithFiles,
  listExportFiles,
  listExportRuns,
  maxListedPaths,
  readExport,
  readExportRun,
} from '../../pipelines/exports/queries.ts';
import { formatTimeWithZone } from '../../pipelines/ingest/run-event/times.ts';
import { nullable, Timestamp, Uuid } from '../server/formats.ts';
import { defineOperation } from '../server/operation.ts';
import { ExportParams, formatWithOffset, formatWithOffsetOrNull, Status } from './bulk-exports.ts';

const RunParams = Type.Object({ bulk_export_id: Uuid(), run_id: Uuid() });

const runPageParameters = {
  // Clients that do not support pagination expect all runs of an export, of which there are at most 3,661.
  limit: Type.Integer({ minimum: 1, maximum: 4_000, default: 4_000 }),
  offset: Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER, default: 0 }),
};

const Cursor = nullable(
  Type.String({ description: 'Start time, trace id and id of a run, which is the order of rows in the files.' }),
);

const ExportRunResult = Type.Object({
  rows_written: Type.Integer(),
  file_count: Type.Integer({ description: 'Number of complete files in the bucket.' }),
  exported_files: Type.Array(Type.String(), {
    description:
      `Paths of complete files in the bucket. A response contains the first ${maxListedPaths.toLocaleString('en')} paths of all its ` +
      'export runs together; `listBulkExportRunFiles` lists all files in pages.',
  }),
  export_path: Type.String({ description: 'Folder of the files of this export run.' }),
  latest_cursor: Cursor,
  pending_upload: nullable(
    Type.Object({ target_cursor: Cursor, file_path: Type.String(), rows_count: Type.Integer() }),
  ),
});

const BulkExportRun = Type.Object({
  id: Uuid(),
  bulk_export_id: Uuid(),
  status: Status(),
  start_time: Timestamp(),
  end_time: Timestamp(),
  retry_number: Type.Integer(),
  errors: nullable(
    Dictionary(Type.String(), {
      description: 'Error and remedy by attempt, such as `retry_0`.',
    }),
  ),
  rows_written: Type.Integer(),
  rows_expected: nullable(Type.Integer({ description: 'Null until the rows are counted.' })),
  bytes_written: Type.Integer(),
  late_runs: nullable(
    Type.Integer({
      description: 'Runs of this day that are in no file; see the export. Null until the end of the export run.',
    }),
  ),
  created_at: Timestamp(),
  updated_at: Timestamp(),
  finished_at: nullable(Timestamp()),
  metadata: Type.Object({
    prefix: Type.String({ description: 'Folder of the export, without the bucket.' }),
    start_time: Timestamp(),
    end_time: Timestamp(),
    execution_backend: Type.String(),
    result: nullable(ExportRunResult),
  }),
});

function formatRun(run: ExportRunWithFiles) {
  const { pendingUpload: pending } = run;
  const [startTime, endTime] = [formatWithOffset(run.startTime), formatWithOffset(run.endTime)];
  return {
    id: run.id,
    bulk_export_id: run.exportId,
    status: run.status,
    start_time: startTime,
    end_time: endTime,
    retry_number: run.retryNumber,
    errors: run.errors,
    rows_written: run.rowsWritten,
    rows_expected: run.rowsTotal,
    bytes_written: run.bytesWritten,
    late_runs: run.lateRuns,
    created_at: formatWithOffset(run.createdAt),
    updated_at: formatWithOffset(run.updatedAt),
    finished_at: formatWithOffsetOrNull(run.finishedAt),
    metadata: {
      prefix: run.prefix,
      start_time: startTime,
      end_time: endTime,
      execution_backend: 'clickhouse',
      result:
        run.fence === 0
          ? null
          : {
              rows_written: run.rowsWritten,
              file_count: run.fileCount,
              exported_files: [...run.paths],
              export_path: run.folder,
              latest_cursor: formatCursor(run.latestCursor),
              pending_upload: pending && {
                target_cursor: formatCursor(pending.last),
                file_path: pending.path,
                rows_count: pending.rows,
              },
            },
    },
  };
}

function formatCursor(cursor: ExportCursor | null): string | null {
  return cursor && [formatTimeWithZone(cursor.startTimeMicros), cursor.traceId, cursor.runId].join(' ');
}

const getBulkExportRun = defineOperation({
  operationId: 'getBulkExportRun',
  method: 'GET',
  path: '/bulk-exports/:bulk_export_id/runs/:run_id',
  summary: 'Get a run of a bulk export',
  access: { permission: 'bulk-exports:read', tenantScope: 'workspace' },
  errors: ['NOT_FOUND'],
  schema: { params: RunParams, response: { 200: BulkExportRun } },
  handler: async ({ caller, params, services }) =>
    formatRun(await readExportRun(services.database, caller.workspaceId, params.bulk_export_id, params.run_id)),
});

const listBulkExportRuns = defineOperation({
  operationId: 'listBulkExportRuns',
  method: 'GET',
  path: '/bulk-exports/:bulk_export_id/runs',
  summary: 'List the runs of a bulk export, one per UTC day, in chronological order',
  access: { permission: 'bulk-exports:read', tenantScope: 'workspace' },
  errors: ['NOT_FOUND'],
  schema: { params: ExportParams, query: Type.Object(runPageParameters), response: { 200: Type.Array(BulkExportRun) } },
  handler: async ({ caller, params, query, services }) => {
    const { id: exportId } = await readExport(services.database, caller.workspaceId, params.bulk_export_id);
    return (await listExportRuns(services.database, caller.workspaceId, { exportId }, query)).map(formatRun);
  },
});

const ExportFile = Type.Object({
  part: Type.Integer({ description: 'Number of the file from 1, ordered by start time.' }),
  path: Type.String({ description: 'Path of the file in the bucket.' }),
  rows: Type.Integer(),
  bytes: Type.Integer(),
  sha256: Type.String({ description: 'Hash of the file, in hexadecimal.' }),
  created_at: Timestamp(),
});

const listBulkExportRunFiles = defineOperation({
  operationId: 'listBulkExportRunFiles',
  method: 'GET',
  path: '/bulk-exports/:bulk_export_id/runs/:run_id/files',
  summary: 'List the complete files of a run of a bulk export',
  access: { permission: 'bulk-exports:read', tenantScope: 'workspace' },
  errors: ['NOT_FOUND'],
  schema: { params: RunParams, query: Type.Object(runPageParameters), response: { 200: Type.Array(ExportFile) } },
  handler: async ({ caller, params, query, services }) => {
    const { bulk_export_id: exportId, run_id: runId } = params;
    const files = await listExportFiles(services.database, caller.workspaceId, exportId, runId, query);
    return files.map(({ createdAt, ...file }) => ({ ...file, created_at: formatWithOffset(createdAt) }));
  },
});

const listScheduledExportRuns = defineOperation({
  operationId: 'listScheduledExportRuns',
  method: 'GET',
  path: '/bulk-exports/runs',
  summary: 'List the runs of all bulk exports of a schedule, in chronological order',
  access: { permission: 'bulk-exports:read', tenantScope: 'workspace' },
  errors: ['NOT_FOUND'],
  schema: {
    query: Type.Object({ source_bulk_export_id: Uuid({ description: 'Id of the schedule.' }), ...runPageParameters }),
    response: { 200: Type.Array(BulkExportRun) },
  },
  handler: async ({ caller, query, services }) => {
    const { id: sourceExportId } = await readExport(services.database, caller.workspaceId, query.source_bulk_export_id);
    return (await listExportRuns(services.database, caller.workspaceId, { sourceExportId }, query)).map(formatRun);
  },
});

export const exportRunOperations = [
  listScheduledExportRuns,
  listBulkExportRuns,
  getBulkExportRun,
  listBulkExportRunFiles,
];
