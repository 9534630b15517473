import { Type } from 'typebox';
import { readRun } from '../../../pipelines/agents/runs/read-run.ts';
import { defineAgentOperation, reads } from '../agent-operation.ts';
import { JsonValue } from '../agent-schema.ts';
import { endOfRun } from '../streaming/answer-of-run.ts';
import { requireCancelPermission } from './may-cancel.ts';
import { idsOf, runPath, ThreadRunParams } from './run-paths.ts';

export const joinRun = defineAgentOperation({
  operationId: 'joinRun',
  method: 'GET',
  path: '/threads/:thread_id/runs/:run_id/join',
  tag: 'thread runs',
  summary: 'Wait for the final state of a run',
  description:
    'The response is that of runs/wait. With `cancel_on_disconnect` the run is cancelled if this connection closes before the run ends.',
  access: reads,
  errors: ['RUN_NOT_FOUND'],
  schema: {
    params: ThreadRunParams,
    query: Type.Object({ cancel_on_disconnect: Type.Boolean({ default: false }) }),
    response: { 200: JsonValue({ description: 'The final state.' }) },
  },
  handler: async (input) => {
    const { params, query } = input;
    const { database, deploymentId } = input.services.agents;
    requireCancelPermission(input.caller, query.cancel_on_disconnect);
    const run = await readRun(database, deploymentId, idsOf(params));
    const path = runPath(run, false);
    return endOfRun(input, {
      ...{ deploymentId, threadId: run.thread_id, runId: run.run_id, path },
      cancelOnDisconnect: query.cancel_on_disconnect,
      reconnectTo: `${path}/join`,
    });
  },
});
