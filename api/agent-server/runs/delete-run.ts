import { Type } from 'typebox';
import { deleteRun } from '../../../pipelines/agents/runs/delete-run.ts';
import { defineAgentOperation, runs } from '../agent-operation.ts';
import { idsOf, ThreadRunParams } from './run-paths.ts';

export const deleteAgentRun = defineAgentOperation({
  operationId: 'deleteAgentRun',
  method: 'DELETE',
  path: '/threads/:thread_id/runs/:run_id',
  tag: 'thread runs',
  summary: 'Delete a run',
  access: runs,
  description: 'The state that it stored in its thread stays. Cancel a running run first.',
  errors: ['RUN_NOT_FOUND', 'THREAD_BUSY'],
  schema: { params: ThreadRunParams, response: { 204: Type.Null() } },
  handler: async ({ params, services: { agents } }) => {
    await deleteRun(agents.database, agents.deploymentId, idsOf(params));
    return null;
  },
});
