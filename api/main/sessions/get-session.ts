import { Type } from 'typebox';
import { readProject } from '../../../pipelines/projects/read-project.ts';
import { defineOperation } from '../../server/operation.ts';
import { SessionParams, SessionWithStatistics, showSessionWithStatistics } from './session-schema.ts';

export const getSession = defineOperation({
  operationId: 'getSession',
  method: 'GET',
  path: '/sessions/:session_id',
  tag: 'projects',
  summary: 'Get a tracing project',
  access: { permission: 'projects:read', tenantScope: 'workspace' },
  unsupported: { query: ['stats_start_time'] },
  errors: ['NOT_FOUND'],
  schema: {
    params: SessionParams,
    query: Type.Object({
      include_stats: Type.Optional(
        Type.Boolean({ description: 'Accepted; statistics are not computed yet and null.' }),
      ),
    }),
    response: { 200: SessionWithStatistics },
  },
  handler: async ({ caller, params, services }) =>
    showSessionWithStatistics(await readProject(services.database, caller.workspaceId, params.session_id)),
});
