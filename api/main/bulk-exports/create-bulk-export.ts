import { createExport } from '../../../pipelines/exports/create-export.ts';
import { parseTime } from '../../../pipelines/ingest/run-event/times.ts';
import { defineOperation } from '../../server/operation.ts';
import { BulkExport, NewBulkExport, showExport } from './bulk-export-schema.ts';

const micros = (time: string) => parseTime(time) as number;

export const createBulkExport = defineOperation({
  operationId: 'createBulkExport',
  method: 'POST',
  path: '/bulk-exports',
  tag: 'bulk exports',
  summary: 'Export the runs of a tracing project to a bucket, once or on a schedule',
  description:
    'The export contains the runs in the range that were accepted before the request. Runs that arrive later are counted, but not exported.',
  access: { permission: 'bulk-exports:manage', tenantScope: 'workspace' },
  unsupported: { body: ['filter', 'all_experiments'], flags: ['all_experiments'] },
  errors: ['NOT_FOUND', 'PARAMETER_NOT_SUPPORTED', 'INVALID_REQUEST', 'LIMIT_REACHED', 'KAFKA_UNAVAILABLE'],
  schema: { body: NewBulkExport, response: { 200: BulkExport } },
  handler: async ({ caller, body, services }) => {
    const created = await createExport(services.exports, caller, {
      destinationId: body.bulk_export_destination_id,
      projectId: body.session_id,
      startTimeMicros: micros(body.start_time),
      endTimeMicros: body.end_time ? micros(body.end_time) : undefined,
      intervalHours: body.interval_hours ?? undefined,
      formatVersion: body.format_version ?? 'v1',
      compression: body.compression ?? 'zstandard',
      exportFields: body.export_fields ?? undefined,
    });
    return showExport(created, services.exports.now());
  },
});
