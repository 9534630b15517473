import { updateDestination as update } from '../../../../pipelines/exports/destinations/update-destination.ts';
import { defineOperation } from '../../../server/operation.ts';
import {
  checkErrors,
  Destination,
  DestinationChange,
  DestinationParams,
  showDestination,
} from './destination-schema.ts';

export const updateDestination = defineOperation({
  operationId: 'updateBulkExportDestination',
  method: 'PATCH',
  path: '/bulk-exports/destinations/:destination_id',
  tag: 'bulk exports',
  summary: 'Rename a destination, or replace its credentials',
  description:
    'Absent and null fields stay unchanged. New credentials are tested as at creation; if the test fails, the old ones stay. Bucket and prefix cannot be changed; create another destination instead.',
  access: { permission: 'bulk-exports:manage', tenantScope: 'workspace' },
  unsupported: { body: ['config', 'destination_type'] },
  errors: [...checkErrors, 'NOT_FOUND'],
  schema: { params: DestinationParams, body: DestinationChange, response: { 200: Destination } },
  handler: async ({ caller, params, body, services }) => {
    const change = { displayName: body.display_name, credentials: body.credentials };
    const { destinations } = services;
    return showDestination(await update(destinations, caller.workspaceId, params.destination_id, change));
  },
});
