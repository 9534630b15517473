import { readExportRun } from '../../../pipelines/exports/list-export-runs.ts';
import { defineOperation } from '../../server/operation.ts';
import { BulkExportRun, RunParams, showRun } from './export-run-schema.ts';

export const getBulkExportRun = defineOperation({
  operationId: 'getBulkExportRun',
  method: 'GET',
  path: '/bulk-exports/:bulk_export_id/runs/:run_id',
  tag: 'bulk exports',
  summary: 'Get a run of a bulk export',
  access: { permission: 'bulk-exports:read', tenantScope: 'workspace' },
  errors: ['NOT_FOUND'],
  schema: { params: RunParams, response: { 200: BulkExportRun } },
  handler: async ({ caller, params, services }) =>
    showRun(await readExportRun(services.database, caller.workspaceId, params.bulk_export_id, params.run_id)),
});
