import { Type } from 'typebox';
import { listExports } from '../../../pipelines/exports/list-exports.ts';
import { Uuid } from '../../server/formats.ts';
import { defineOperation } from '../../server/operation.ts';
import { BulkExport, Status, showExport } from './bulk-export-schema.ts';

const Query = Type.Object({
  status: Type.Optional(Type.Array(Status(), { maxItems: 6 })),
  session_id: Type.Optional(Uuid()),
  bulk_export_destination_id: Type.Optional(Uuid()),
  source_bulk_export_id: Type.Optional(Uuid({ description: 'Only exports that this schedule created.' })),
  scheduled: Type.Optional(Type.Boolean({ description: 'true: schedules only; false: everything else.' })),
  // Clients without pagination expect all exports (SPEC 4.3).
  limit: Type.Integer({ minimum: 1, maximum: 1_000, default: 1_000 }),
  offset: Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER, default: 0 }),
});

export const listBulkExports = defineOperation({
  operationId: 'listBulkExports',
  method: 'GET',
  path: '/bulk-exports',
  tag: 'bulk exports',
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
    return found.map((each) => showExport(each, services.exports.now()));
  },
});
