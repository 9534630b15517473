import { Type } from 'typebox';
import { type ExportWithProgress, paceOf, shareDone } from '../../../pipelines/exports/read-export.ts';
import { nullable, optional, Text, Timestamp, Uuid } from '../../server/formats.ts';

/** Source: SPEC 3.3. */
export const Status = () =>
  Type.Union([
    Type.Literal('CREATED'),
    Type.Literal('RUNNING'),
    Type.Literal('COMPLETED'),
    Type.Literal('FAILED'),
    Type.Literal('CANCELLED'),
    Type.Literal('TIMEDOUT'),
  ]);
const FormatVersion = Type.Union([Type.Literal('v1'), Type.Literal('v2_beta')]);
const Compression = Type.Union([
  Type.Literal('none'),
  Type.Literal('gzip'),
  Type.Literal('snappy'),
  Type.Literal('zstandard'),
]);

export const ExportParams = Type.Object({ bulk_export_id: Uuid() });

export const NewBulkExport = Type.Object({
  bulk_export_destination_id: Uuid(),
  session_id: Uuid({ description: 'The tracing project.' }),
  start_time: Timestamp({ description: 'Inclusive; of the start times of runs.' }),
  end_time: optional(Timestamp({ description: 'Exclusive. To be left out where `interval_hours` is given.' })),
  interval_hours: optional(
    Type.Integer({
      minimum: 1,
      maximum: 168,
      description:
        'Makes a schedule: an export for each interval of so many hours from `start_time` on, also of those that are over.',
    }),
  ),
  format: optional(Type.Literal('Parquet'), { description: 'Default: Parquet.' }),
  format_version: optional(FormatVersion, {
    description: 'Default: v1. v2_beta: types of their own for times and lists, and folders as Hive reads them.',
  }),
  compression: optional(Compression, { description: 'Of the files. Default: zstandard.' }),
  export_fields: optional(
    Type.Array(Text({ maxLength: 256 }), {
      maxItems: 1_000,
      description: 'The columns of the files. Absent: all that there are.',
    }),
  ),
  filter: Type.Optional(Type.Unknown({ description: 'Not supported yet: null, empty or absent.' })),
});

const Progress = Type.Object(
  {
    runs_total: Type.Integer(),
    runs_completed: Type.Integer(),
    share_done: Type.Number({
      description: 'From 0 to 1, and 1 when it is COMPLETED; each of its runs counts alike. It never falls.',
    }),
    rows_written: Type.Integer(),
    rows_expected: nullable(Type.Integer({ description: 'Null until every run was counted.' })),
    bytes_written: Type.Integer(),
    files: Type.Integer(),
    late_runs: Type.Integer({
      description: 'Runs of the range that arrived after the export was made, and are not in it.',
    }),
    retries: Type.Integer(),
    rows_per_second: nullable(Type.Number()),
    seconds_left: nullable(Type.Number({ description: 'At the pace until now.' })),
  },
  { description: 'Of a schedule all zero: what it spawned are exports of their own.' },
);

export const BulkExport = Type.Object({
  id: Uuid(),
  tenant_id: Uuid({ description: 'The workspace.' }),
  bulk_export_destination_id: Uuid(),
  session_id: Uuid(),
  start_time: Timestamp(),
  end_time: nullable(Timestamp()),
  interval_hours: nullable(Type.Integer()),
  format: Type.String(),
  format_version: FormatVersion,
  compression: Compression,
  export_fields: nullable(Type.Array(Type.String())),
  filter: nullable(Type.String()),
  status: Status(),
  status_reason: nullable(Type.String({ description: 'Why it is where it is.' })),
  source_bulk_export_id: nullable(Uuid({ description: 'The schedule that spawned it.' })),
  next_start_time: nullable(Timestamp({ description: 'Of a schedule: where its next interval begins.' })),
  members_until: Timestamp({ description: 'Runs that were received later are not in it.' }),
  created_at: Timestamp(),
  updated_at: Timestamp(),
  started_at: nullable(Timestamp()),
  finished_at: nullable(Timestamp()),
  progress: Progress,
});

/** Times with their offset, as clients of this API read them elsewhere. */
export function withOffset(time: string): string {
  return time.replace(/Z$/, '+00:00');
}

export function withOffsetOrNull(time: string | null): string | null {
  return time === null ? null : withOffset(time);
}

export function showExport(record: ExportWithProgress, now: Date) {
  const { rowsPerSecond, secondsLeft } = paceOf(record, now);
  const counted = record.runsTotal > 0 && record.runsCounted === record.runsTotal;
  return {
    id: record.id,
    tenant_id: record.workspaceId,
    bulk_export_destination_id: record.destinationId,
    session_id: record.projectId,
    start_time: withOffset(record.startTime),
    end_time: withOffsetOrNull(record.endTime),
    interval_hours: record.intervalHours,
    format: record.format,
    format_version: record.formatVersion,
    compression: record.compression,
    export_fields: record.exportFields === null ? null : [...record.exportFields],
    filter: record.filter,
    status: record.status,
    status_reason: record.statusReason,
    source_bulk_export_id: record.sourceExportId,
    next_start_time: withOffsetOrNull(record.nextStartTime),
    members_until: withOffset(record.membersUntil),
    created_at: withOffset(record.createdAt),
    updated_at: withOffset(record.updatedAt),
    started_at: withOffsetOrNull(record.startedAt),
    finished_at: withOffsetOrNull(record.finishedAt),
    progress: {
      runs_total: record.runsTotal,
      runs_completed: record.runsCompleted,
      share_done: shareDone(record),
      rows_written: record.rowsWritten,
      rows_expected: counted ? record.rowsCounted : null,
      bytes_written: record.bytesWritten,
      files: record.files,
      late_runs: record.lateRuns,
      retries: record.retries,
      rows_per_second: rowsPerSecond ?? null,
      seconds_left: secondsLeft ?? null,
    },
  };
}
