import { readRun, shownRun } from '../../../pipelines/agents/runs/read-run.ts';
import { defineAgentOperation, reads } from '../agent-operation.ts';
import { Run } from './run-body.ts';
import { idsOf, ThreadRunParams } from './run-paths.ts';

export const getAgentRun = defineAgentOperation({
  operationId: 'getAgentRun',
  method: 'GET',
  path: '/threads/:thread_id/runs/:run_id',
  tag: 'thread runs',
  summary: 'Get a run',
  access: reads,
  errors: ['RUN_NOT_FOUND'],
  schema: { params: ThreadRunParams, response: { 200: Run } },
  handler: async ({ params, services: { agents } }) =>
    shownRun(await readRun(agents.database, agents.deploymentId, idsOf(params))),
});
