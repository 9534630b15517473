import { readDestination } from '../../../../pipelines/exports/destinations/read-destination.ts';
import { defineOperation } from '../../../server/operation.ts';
import { Destination, DestinationParams, showDestination } from './destination-schema.ts';

export const getDestination = defineOperation({
  operationId: 'getBulkExportDestination',
  method: 'GET',
  path: '/bulk-exports/destinations/:destination_id',
  tag: 'bulk exports',
  summary: 'Get a destination',
  access: { permission: 'bulk-exports:read', tenantScope: 'workspace' },
  errors: ['NOT_FOUND'],
  schema: { params: DestinationParams, response: { 200: Destination } },
  handler: async ({ caller, params, services }) =>
    showDestination(await readDestination(services.database, caller.workspaceId, params.destination_id)),
});
