import { Type } from 'typebox';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { cancelExport } from '../../../pipelines/exports/cancel-export.ts';
import { defineOperation } from '../../server/operation.ts';
import { BulkExport, ExportParams, showExport } from './bulk-export-schema.ts';

export const cancelBulkExport = defineOperation({
  operationId: 'cancelBulkExport',
  method: 'PATCH',
  path: '/bulk-exports/:bulk_export_id',
  tag: 'bulk exports',
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
    return showExport(cancelled, services.exports.now());
  },
});
