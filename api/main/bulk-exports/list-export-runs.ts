import { Type } from 'typebox';
import { listExportRuns } from '../../../pipelines/exports/list-export-runs.ts';
import { readExport } from '../../../pipelines/exports/read-export.ts';
import { defineOperation } from '../../server/operation.ts';
import { ExportParams } from './bulk-export-schema.ts';
import { BulkExportRun, pageOfRuns, showRun } from './export-run-schema.ts';

export const listBulkExportRuns = defineOperation({
  operationId: 'listBulkExportRuns',
  method: 'GET',
  path: '/bulk-exports/:bulk_export_id/runs',
  tag: 'bulk exports',
  summary: 'List the runs of a bulk export, one per UTC day, in chronological order',
  access: { permission: 'bulk-exports:read', tenantScope: 'workspace' },
  errors: ['NOT_FOUND'],
  schema: { params: ExportParams, query: Type.Object(pageOfRuns), response: { 200: Type.Array(BulkExportRun) } },
  handler: async ({ caller, params, query, services }) => {
    const { id: exportId } = await readExport(services.database, caller.workspaceId, params.bulk_export_id);
    return (await listExportRuns(services.database, caller.workspaceId, { exportId }, query)).map(showRun);
  },
});
