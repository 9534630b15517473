import { Type } from 'typebox';
import { listExportFiles } from '../../../pipelines/exports/list-export-runs.ts';
import { Timestamp } from '../../server/formats.ts';
import { defineOperation } from '../../server/operation.ts';
import { withOffset } from './bulk-export-schema.ts';
import { pageOfRuns, RunParams } from './export-run-schema.ts';

const File = Type.Object({
  part: Type.Integer({ description: 'Number of the file from 1, ordered by start time.' }),
  path: Type.String({ description: 'Path of the file in the bucket.' }),
  rows: Type.Integer(),
  bytes: Type.Integer(),
  sha256: Type.String({ description: 'Hash of the file, in hexadecimal.' }),
  created_at: Timestamp(),
});

export const listBulkExportRunFiles = defineOperation({
  operationId: 'listBulkExportRunFiles',
  method: 'GET',
  path: '/bulk-exports/:bulk_export_id/runs/:run_id/files',
  tag: 'bulk exports',
  summary: 'List the complete files of a run of a bulk export',
  access: { permission: 'bulk-exports:read', tenantScope: 'workspace' },
  errors: ['NOT_FOUND'],
  schema: { params: RunParams, query: Type.Object(pageOfRuns), response: { 200: Type.Array(File) } },
  handler: async ({ caller, params, query, services }) => {
    const { bulk_export_id: exportId, run_id: runId } = params;
    const files = await listExportFiles(services.database, caller.workspaceId, exportId, runId, query);
    return files.map(({ createdAt, ...file }) => ({ ...file, created_at: withOffset(createdAt) }));
  },
});
