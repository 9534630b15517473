import { Type } from 'typebox';
import type { ExportCursor } from '../../../pipelines/exports/export-scope.ts';
import type { ExportRunWithFiles } from '../../../pipelines/exports/list-export-runs.ts';
import { formatTimeWithZone } from '../../../pipelines/ingest/run-event/times.ts';
import { nullable, Timestamp, Uuid } from '../../server/formats.ts';
import { Status, withOffset, withOffsetOrNull } from './bulk-export-schema.ts';

export const RunParams = Type.Object({ bulk_export_id: Uuid(), run_id: Uuid() });

export const pageOfRuns = {
  limit: Type.Integer({ minimum: 1, maximum: 1_000, default: 1_000 }),
  offset: Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER, default: 0 }),
};

const Cursor = nullable(
  Type.String({ description: 'Start time, trace id and id of a run, which is the order of rows in the files.' }),
);

const Result = Type.Object({
  rows_written: Type.Integer(),
  exported_files: Type.Array(Type.String(), { description: 'Paths of complete files in the bucket.' }),
  export_path: Type.String({ description: 'Folder of the files of this export run.' }),
  latest_cursor: Cursor,
  pending_upload: nullable(
    Type.Object({ target_cursor: Cursor, file_path: Type.String(), rows_count: Type.Integer() }),
  ),
});

export const BulkExportRun = Type.Object({
  id: Uuid(),
  bulk_export_id: Uuid(),
  status: Status(),
  start_time: Timestamp(),
  end_time: Timestamp(),
  retry_number: Type.Integer(),
  errors: nullable(
    Type.Record(Type.String(), Type.String(), {
      description: 'Error and remedy by attempt, such as `retry_0`.',
    }),
  ),
  rows_written: Type.Integer(),
  rows_expected: nullable(Type.Integer({ description: 'Null until the rows are counted.' })),
  bytes_written: Type.Integer(),
  late_runs: nullable(
    Type.Integer({
      description: 'Runs of this day that arrived after the export was created; null until the end of the export run.',
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
    result: nullable(Result),
  }),
});

export function showRun(run: ExportRunWithFiles) {
  const { pendingUpload: pending } = run;
  const [startTime, endTime] = [withOffset(run.startTime), withOffset(run.endTime)];
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
    created_at: withOffset(run.createdAt),
    updated_at: withOffset(run.updatedAt),
    finished_at: withOffsetOrNull(run.finishedAt),
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
              exported_files: [...run.paths],
              export_path: run.folder,
              latest_cursor: showCursor(run.latestCursor),
              pending_upload: pending && {
                target_cursor: showCursor(pending.last),
                file_path: pending.path,
                rows_count: pending.rows,
              },
            },
    },
  };
}

function showCursor(cursor: ExportCursor | null): string | null {
  return cursor && [formatTimeWithZone(cursor.startTimeMicros), cursor.traceId, cursor.runId].join(' ');
}
