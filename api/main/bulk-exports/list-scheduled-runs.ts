import { Type } from 'typebox';
import { listExportRuns } from '../../../pipelines/exports/list-export-runs.ts';
import { readExport } from '../../../pipelines/exports/read-export.ts';
import { Uuid } from '../../server/formats.ts';
import { defineOperation } from '../../server/operation.ts';
import { BulkExportRun, pageOfRuns, showRun } from './export-run-schema.ts';

export const listScheduledExportRuns = defineOperation({
  operationId: 'listScheduledExportRuns',
  method: 'GET',
  path: '/bulk-exports/runs',
  tag: 'bulk exports',
  summary: 'List the runs of all bulk exports of a schedule, in chronological order',
  access: { permission: 'bulk-exports:read', tenantScope: 'workspace' },
  errors: ['NOT_FOUND'],
  schema: {
    query: Type.Object({ source_bulk_export_id: Uuid({ description: 'Id of the schedule.' }), ...pageOfRuns }),
    response: { 200: Type.Array(BulkExportRun) },
  },
  handler: async ({ caller, query, services }) => {
    const { id: sourceExportId } = await readExport(services.database, caller.workspaceId, query.source_bulk_export_id);
    return (await listExportRuns(services.database, caller.workspaceId, { sourceExportId }, query)).map(showRun);
  },
});
