import { Type } from 'typebox';
import { deleteProjects } from '../../../pipelines/projects/delete-projects.ts';
import { Uuid } from '../../server/formats.ts';
import { defineOperation } from '../../server/operation.ts';

export const deleteSessions = defineOperation({
  operationId: 'deleteSessions',
  method: 'DELETE',
  path: '/sessions',
  tag: 'projects',
  summary: 'Delete several tracing projects with their runs',
  description: 'Atomic: if one project does not exist, the response is 404 and nothing is deleted.',
  access: { permission: 'projects:delete', tenantScope: 'workspace' },
  errors: ['NOT_FOUND'],
  schema: {
    query: Type.Object({ session_ids: Type.Array(Uuid(), { minItems: 1, maxItems: 100 }) }),
    response: { 200: Type.Object({ message: Type.String() }) },
  },
  handler: async ({ caller, query, services }) => {
    await deleteProjects(services, caller.workspaceId, query.session_ids);
    return { message: 'Sessions deleted' };
  },
});
