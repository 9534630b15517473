import { createDestination as create } from '../../../../pipelines/exports/destinations/create-destination.ts';
import { defineOperation } from '../../../server/operation.ts';
import { checkErrors, Destination, NewDestination, showDestination } from './destination-schema.ts';

export const createDestination = defineOperation({
  operationId: 'createBulkExportDestination',
  method: 'POST',
  path: '/bulk-exports/destinations',
  tag: 'bulk exports',
  summary: 'Create a destination for bulk exports',
  description:
    'The server writes a small object below `tmp/` in the prefix. It also reads and deletes the object if it has the permissions. If a step fails, the error names it and no destination is created.',
  access: { permission: 'bulk-exports:manage', tenantScope: 'workspace' },
  errors: [...checkErrors, 'LIMIT_REACHED'],
  schema: { body: NewDestination, response: { 200: Destination } },
  handler: async ({ caller, body, services }) => {
    const destination = {
      type: body.destination_type ?? 's3',
      displayName: body.display_name,
      config: body.config,
      credentials: body.credentials,
    };
    return showDestination(await create(services.destinations, caller.workspaceId, destination));
  },
});
