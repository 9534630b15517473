import { Type } from 'typebox';
import { listDestinations as list } from '../../../../pipelines/exports/destinations/list-destinations.ts';
import { defineOperation } from '../../../server/operation.ts';
import { Destination, showDestination } from './destination-schema.ts';

export const listDestinations = defineOperation({
  operationId: 'listBulkExportDestinations',
  method: 'GET',
  path: '/bulk-exports/destinations',
  tag: 'bulk exports',
  summary: 'List the destinations of the workspace, oldest first',
  access: { permission: 'bulk-exports:read', tenantScope: 'workspace' },
  schema: {
    query: Type.Object({
      limit: Type.Integer({ minimum: 1, maximum: 1_000, default: 100 }),
      offset: Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER, default: 0 }),
    }),
    response: { 200: Type.Array(Destination) },
  },
  handler: async ({ caller, query, services }) =>
    (await list(services.database, caller.workspaceId, query)).map(showDestination),
});
