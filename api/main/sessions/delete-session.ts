import { Type } from 'typebox';
import { deleteProjects } from '../../../pipelines/projects/delete-projects.ts';
import { defineOperation } from '../../server/operation.ts';
import { SessionParams } from './session-schema.ts';

export const deleteSession = defineOperation({
  operationId: 'deleteSession',
  method: 'DELETE',
  path: '/sessions/:session_id',
  tag: 'projects',
  summary: 'Delete a tracing project with its runs',
  description: 'The name is available immediately. Runs are deleted in the background. Usage stays.',
  access: { permission: 'projects:delete', tenantScope: 'workspace' },
  errors: ['NOT_FOUND'],
  schema: { params: SessionParams, response: { 200: Type.Object({ message: Type.String() }) } },
  handler: async ({ caller, params, services }) => {
    await deleteProjects(services, caller.workspaceId, [params.session_id]);
    return { message: 'Session deleted' };
  },
});
