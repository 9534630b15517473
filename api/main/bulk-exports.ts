import { Type } from 'typebox';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { cancelExport, createExport } from '../../pipelines/exports/create-cancel.ts';
import { readClock } from '../../pipelines/exports/export-deps.ts';
import {
  computeCompletedShare,
  type ExportWithProgress,
  estimateRate,
  listExports,
  readExport,
} from '../../pipelines/exports/queries.ts';
import { exportStatuses } from '../../pipelines/exports/record.ts';
import { parseTime } from '../../pipelines/ingest/run-event/times.ts';
import { nullable, OneOf, optional, Text, Timestamp, Uuid } from '../server/formats.ts';
import { defineOperation } from '../server/operation.ts';

export const Status = () => OneOf(exportStatuses);
const FormatVersion = OneOf(['v1', 'v2_beta']);
const Compression = OneOf(['none', 'gzip', 'snappy', 'zstandard']);

export const ExportParams = Type.Object({ bulk_export_id: Uuid() });

const NewBulkExport = Type.Object({
  bulk_export_destination_id: Uuid(),
  session_id: Uuid({ description: 'Id of the tracing project.' }),
  start_time: Timestamp({ description: 'Export runs that started at or after this time.' }),
  end_time: optional(
    Timestamp({ description: 'Export runs that started before this time. Must be absent with `interval_hours`.' }),
  ),
  interval_hours: optional(
    Type.Integer({
      minimum: 1,
      maximum: 168,
      description:
        'Creates a schedule with one export for each interval of this many hours from `start_time` on, including past intervals.',
    }),
  ),
  format: optional(Type.Literal('Parquet'), { description: 'Default: Parquet.' }),
  format_version: optional(FormatVersion, {
    description: 'Default: v1. v2_beta uses native Parquet types for times and lists, and Hive partition folders.',
  }),
  compression: optional(Compression, { description: 'Compression of the files. Default: zstandard.' }),
  export_fields: optional(
    Type.Array(Text({ maxLength: 256 }), {
      maxItems: 1_000,
      description: 'Columns of the files. Default: all.',
    }),
  ),
  filter: optional(
    Type.String({ description: 'Condition on the runs in the filter language; see the guide. Default: all runs.' }),
  ),
});

const Progress = Type.Object(
  {
    runs_total: Type.Integer(),
    runs_completed: Type.Integer(),
    share_done: Type.Number({
      description: 'From 0 to 1; 1 when the export is COMPLETED. All export runs have equal weight. Never decreases.',
    }),
    rows_written: Type.Integer(),
    rows_expected: nullable(Type.Integer({ description: 'Null until the rows of all export runs are counted.' })),
    bytes_written: Type.Integer(),
    files: Type.Integer(),
    late_runs: Type.Integer({
      description:
        'Runs in the range that are in no file, because they arrived, or began to match the filter, after their part of the range was ' +
        'read. Deletions of exported runs meanwhile can hide some of those that began to match.',
    }),
    retries: Type.Integer(),
    rows_per_second: nullable(Type.Number()),
    seconds_left: nullable(Type.Number({ description: 'Estimate from the rate so far.' })),
  },
  { description: 'All zero for a schedule, whose exports are separate.' },
);

const BulkExport = Type.Object({
  id: Uuid(),
  tenant_id: Uuid({ description: 'Id of the workspace.' }),
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
  status_reason: nullable(Type.String({ description: 'Reason of the status.' })),
  source_bulk_export_id: nullable(Uuid({ description: 'Id of the schedule that created the export.' })),
  next_start_time: nullable(Timestamp({ description: 'Start of the next interval of a schedule.' })),
  members_until: Timestamp({ description: 'Runs received later are not included.' }),
  created_at: Timestamp(),
  updated_at: Timestamp(),
  started_at: nullable(Timestamp()),
  finished_at: nullable(Timestamp()),
  progress: Progress,
});

/** Formats a time with `+00:00` instead of `Z`, as in other responses of this API. */
export function formatWithOffset(time: string): string {
  return time.replace(/Z$/, '+00:00');
}

export function formatWithOffsetOrNull(time: string | null): string | null {
  return time === null ? null : formatWithOffset(time);
}

export function formatExport(record: ExportWithProgress, now: Date) {
  const { rowsPerSecond, secondsLeft } = estimateRate(record, now);
  const isFullyCounted = record.runsTotal > 0 && record.runsCounted === record.runsTotal;
  return {
    id: record.id,
    tenant_id: record.workspaceId,
    bulk_export_destination_id: record.destinationId,
    session_id: record.projectId,
    start_time: formatWithOffset(record.startTime),
    end_time: formatWithOffsetOrNull(record.endTime),
    interval_hours: record.intervalHours,
    format: record.format,
    format_version: record.formatVersion,
    compression: record.compression,
    export_fields: record.exportFields === null ? null : [...record.exportFields],
    filter: record.filter,
    status: record.status,
    status_reason: record.statusReason,
    source_bulk_export_id: record.sourceExportId,
    next_start_time: formatWithOffsetOrNull(record.nextStartTime),
    members_until: formatWithOffset(record.membersUntil),
    created_at: formatWithOffset(record.createdAt),
    updated_at: formatWithOffset(record.updatedAt),
    started_at: formatWithOffsetOrNull(record.startedAt),
    finished_at: formatWithOffsetOrNull(record.finishedAt),
    progress: {
      runs_total: record.runsTotal,
      runs_completed: record.runsCompleted,
      share_done: computeCompletedShare(record),
      rows_written: record.rowsWritten,
      rows_expected: isFullyCounted ? record.rowsCounted : null,
      bytes_written: record.bytesWritten,
      files: record.files,
      late_runs: record.lateRuns,
      retries: record.retries,
      rows_per_second: rowsPerSecond ?? null,
      seconds_left: secondsLeft ?? null,
    },
  };
}

const toMicros = (time: string) => parseTime(time) as number;

const createBulkExport = defineOperation({
  operationId: 'createBulkExport',
  method: 'POST',
  path: '/bulk-exports',
  summary: 'Export the runs of a tracing project to a bucket, once or on a schedule',
  description:
    'The export contains the runs in the range that were accepted before the request. Runs that arrive later are counted, but not exported.',
  access: { permission: 'bulk-exports:manage', tenantScope: 'workspace' },
  unsupported: { body: ['all_experiments'], flags: ['all_experiments'] },
  errors: [
    'NOT_FOUND',
    'PARAMETER_NOT_SUPPORTED',
    'INVALID_REQUEST',
    'INVALID_FILTER',
    'LIMIT_REACHED',
    'KAFKA_UNAVAILABLE',
  ],
  schema: { body: NewBulkExport, response: { 200: BulkExport } },
  handler: async ({ caller, body, services }) => {
    const created = await createExport(services.exports, caller, {
      destinationId: body.bulk_export_destination_id,
      projectId: body.session_id,
      startTimeMicros: toMicros(body.start_time),
      endTimeMicros: body.end_time ? toMicros(body.end_time) : undefined,
      intervalHours: body.interval_hours ?? undefined,
      formatVersion: body.format_version ?? 'v1',
      compression: body.compression ?? 'zstandard',
      exportFields: body.export_fields ?? undefined,
      filter: body.filter || undefined,
    });
    return formatExport(created, await readClock(services.exports));
  },
});

const Query = Type.Object({
  status: Type.Optional(Type.Array(Status(), { maxItems: 6 })),
  session_id: Type.Optional(Uuid()),
  bulk_export_destination_id: Type.Optional(Uuid()),
  source_bulk_export_id: Type.Optional(Uuid({ description: 'Only exports that this schedule created.' })),
  scheduled: Type.Optional(Type.Boolean({ description: 'true: schedules only; false: everything else.' })),
  // Clients that do not support pagination expect all exports.
  limit: Type.Integer({ minimum: 1, maximum: 1_000, default: 1_000 }),
  offset: Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER, default: 0 }),
});

const listBulkExports = defineOperation({
  operationId: 'listBulkExports',
  method: 'GET',
  path: '/bulk-exports',
  summary: 'List the bulk exports and schedules of the workspace, newest first',
  access: { permission: 'bulk-exports:read', tenantScope: 'workspace' },
  schema: { query: Query, response: { 200: Type.Array(BulkExport) } },
  handler: async ({ caller, query, services }) => {
    const found = await listExports(services.database, caller.workspaceId, {
      statuses: query.status,
      projectId: query.session_id,
      destinationId: query.bulk_export_destination_id,
      sourceExportId: query.source_bulk_export_id,
      scheduled: query.scheduled,
      limit: query.limit,
      offset: query.offset,
    });
    const now = await readClock(services.exports);
    return found.map((each) => formatExport(each, now));
  },
});

const getBulkExport = defineOperation({
  operationId: 'getBulkExport',
  method: 'GET',
  path: '/bulk-exports/:bulk_export_id',
  summary: 'Get a bulk export with its progress',
  access: { permission: 'bulk-exports:read', tenantScope: 'workspace' },
  errors: ['NOT_FOUND'],
  schema: { params: ExportParams, response: { 200: BulkExport } },
  handler: async ({ caller, params, services }) => {
    const found = await readExport(services.database, caller.workspaceId, params.bulk_export_id);
    return formatExport(found, await readClock(services.exports));
  },
});

const cancelBulkExport = defineOperation({
  operationId: 'cancelBulkExport',
  method: 'PATCH',
  path: '/bulk-exports/:bulk_export_id',
  summary: 'Cancel a bulk export or a schedule',
  description:
    'Finished files stay in the bucket and in the list of files. Exports that a schedule has created continue. A cancelled export or schedule cannot be restarted.',
  access: { permission: 'bulk-exports:manage', tenantScope: 'workspace' },
  errors: ['NOT_FOUND', 'EXPORT_FINISHED', 'INVALID_REQUEST'],
  schema: {
    params: ExportParams,
    body: Type.Object({
      status: Type.Optional(Type.String({ description: '`Cancelled` (default), case-insensitive.' })),
    }),
    response: { 200: BulkExport },
  },
  handler: async ({ caller, params, body, services }) => {
    if (body.status !== undefined && body.status.toLowerCase() !== 'cancelled') {
      const field = { loc: ['body', 'status'], msg: "must be 'Cancelled'", type: 'enum' };
      throw runlakeError('INVALID_REQUEST', {}, { fields: [field] });
    }
    const cancelled = await cancelExport(services.exports, caller.workspaceId, params.bulk_export_id);
    return formatExport(cancelled, await readClock(services.exports));
  },
});

export const bulkExportOperations = [createBulkExport, listBulkExports, getBulkExport, cancelBulkExport];
