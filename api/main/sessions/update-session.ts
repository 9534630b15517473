import { updateProject } from '../../../pipelines/projects/update-project.ts';
import { defineOperation } from '../../server/operation.ts';
import { Session, SessionChange, SessionParams, showSession } from './session-schema.ts';

export const updateSession = defineOperation({
  operationId: 'updateSession',
  method: 'PATCH',
  path: '/sessions/:session_id',
  tag: 'projects',
  summary: 'Update a tracing project',
  description:
    'Absent and null fields stay unchanged. After a rename, patches of runs with the old name are still stored in the project.',
  access: { permission: 'projects:update', tenantScope: 'workspace' },
  errors: ['NOT_FOUND', 'CONFLICT'],
  schema: { params: SessionParams, body: SessionChange, response: { 200: Session } },
  handler: async ({ caller, params, body, services }) => {
    const change = {
      name: body.name,
      description: body.description,
      extra: body.extra,
      endTime: body.end_time,
      defaultDatasetId: body.default_dataset_id,
      traceTier: body.trace_tier,
    };
    return showSession(await updateProject(services, caller.workspaceId, params.session_id, change));
  },
});
