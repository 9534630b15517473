import { readExport } from '../../../pipelines/exports/read-export.ts';
import { defineOperation } from '../../server/operation.ts';
import { BulkExport, ExportParams, showExport } from './bulk-export-schema.ts';

export const getBulkExport = defineOperation({
  operationId: 'getBulkExport',
  method: 'GET',
  path: '/bulk-exports/:bulk_export_id',
  tag: 'bulk exports',
  summary: 'Get a bulk export with its progress',
  access: { permission: 'bulk-exports:read', tenantScope: 'workspace' },
  errors: ['NOT_FOUND'],
  schema: { params: ExportParams, response: { 200: BulkExport } },
  handler: async ({ caller, params, services }) => {
    const found = await readExport(services.database, caller.workspaceId, params.bulk_export_id);
    return showExport(found, services.exports.now());
  },
});
