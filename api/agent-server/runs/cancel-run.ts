import { Type } from 'typebox';
import { awaitRunEnd } from '../../../pipelines/agents/runs/await-run-end.ts';
import { cancelRun } from '../../../pipelines/agents/runs/cancel-run.ts';
import { Answer } from '../../server/operation.ts';
import { defineAgentOperation, runs } from '../agent-operation.ts';
import { words } from '../agent-schema.ts';
import { idsOf, ThreadRunParams } from './run-paths.ts';

export const CancelAction = words(['interrupt', 'rollback']);

export const cancelAgentRun = defineAgentOperation({
  operationId: 'cancelAgentRun',
  method: 'POST',
  path: '/threads/:thread_id/runs/:run_id/cancel',
  tag: 'thread runs',
  summary: 'Cancel a run',
  description:
    '`interrupt` keeps the stored state; `rollback` deletes the run with its state. Rolling back a run that has ended results in 409. With `wait` the response is sent when the run has ended.',
  access: runs,
  errors: ['RUN_NOT_FOUND', 'RUN_ENDED'],
  schema: {
    params: ThreadRunParams,
    query: Type.Object({
      wait: Type.Boolean({ default: false }),
      action: Type.Optional(CancelAction),
    }),
    response: { 202: Type.Null(), 204: Type.Null() },
  },
  handler: async ({ params, query, services: { agents }, request }) => {
    const { database, deploymentId, wake } = agents;
    const run = idsOf(params);
    await cancelRun(database, deploymentId, run, query.action ?? 'interrupt');
    wake();
    if (!query.wait) return new Answer({ status: 202 });
    // The response is the same if the wait is aborted; the row of the run has its state.
    const signal = AbortSignal.any([request.signal, request.server.drainStarted]);
    await awaitRunEnd(agents, { deploymentId, ...run }, { signal });
    return new Answer({ status: 204 });
  },
});
