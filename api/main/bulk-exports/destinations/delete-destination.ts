import { Type } from 'typebox';
import { deleteDestination as remove } from '../../../../pipelines/exports/destinations/delete-destination.ts';
import { defineOperation } from '../../../server/operation.ts';
import { DestinationParams } from './destination-schema.ts';

export const deleteDestination = defineOperation({
  operationId: 'deleteBulkExportDestination',
  method: 'DELETE',
  path: '/bulk-exports/destinations/:destination_id',
  tag: 'bulk exports',
  summary: 'Delete a destination with its credentials',
  description: 'Exported files stay in the bucket.',
  access: { permission: 'bulk-exports:manage', tenantScope: 'workspace' },
  errors: ['NOT_FOUND', 'DESTINATION_IN_USE'],
  schema: { params: DestinationParams, response: { 200: Type.Object({ message: Type.String() }) } },
  handler: async ({ caller, params, services }) => {
    await remove(services.database, caller.workspaceId, params.destination_id);
    return { message: 'Bulk export destination deleted' };
  },
});
