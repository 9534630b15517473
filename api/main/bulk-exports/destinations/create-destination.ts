import { createDestination as create } from '../../../../pipelines/exports/destinations/create-destination.ts';
import { defineOperation } from '../../../server/operation.ts';
import { checkErrors, Destination, NewDestination, showDestination } from './destination-schema.ts';

export const createDestination = defineOperation({
  operationId: 'createBulkExportDestination',
  method: 'POST',
  path: '/bulk-exports/destinations',
  tag: 'bulk exports',
  summary: 'Make a destination for bulk exports',
  description:
    'A small object is written below `tmp/` in the prefix, read back and deleted, the latter two as far as rights allow. What fails is told with its step, and then nothing is made.',
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
