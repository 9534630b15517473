import { Type } from 'typebox';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { awaitRunEnd } from '../../../pipelines/agents/runs/await-run-end.ts';
import { cancelRun as cancel, cancelRuns as cancelSeveral } from '../../../pipelines/agents/runs/cancel-run.ts';
import { deleteRun as remove } from '../../../pipelines/agents/runs/delete-run.ts';
import { OneOf, optional, Uuid } from '../../server/formats.ts';
import { RawResponse } from '../../server/operation.ts';
import { createThreadNotFoundError } from '../access/rules.ts';
import { defineAgentOperation, runAccess } from '../agent-operation.ts';
import { ClosedObject } from '../agent-schema.ts';
import { createRunRule, normaliseRunIds, ThreadRunParams } from './run-schema.ts';

const CancelAction = OneOf(['interrupt', 'rollback']);

export const cancelAgentRun = defineAgentOperation({
  operationId: 'cancelAgentRun',
  method: 'POST',
  path: '/threads/:thread_id/runs/:run_id/cancel',
  summary: 'Cancel a run',
  description:
    '`interrupt` keeps the stored state; `rollback` deletes the run with its state. Rolling back a run that has ended results in 409. With `wait` the response is sent when the run has ended.',
  access: runAccess,
  rule: createRunRule('threads:update'),
  unsupported: { query: ['reason'] },
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
    const run = normaliseRunIds(params);
    await cancel(database, deploymentId, run, query.action ?? 'interrupt');
    wake();
    if (!query.wait) return new RawResponse({ status: 202 });
    // The response does not change if the wait is aborted. Clients can read the state of the run at any time.
    const signal = AbortSignal.any([request.signal, request.server.drainStarted]);
    await awaitRunEnd(agents, { deploymentId, ...run }, { signal });
    return new RawResponse({ status: 204 });
  },
});

const cancelAgentRuns = defineAgentOperation({
  operationId: 'cancelAgentRuns',
  method: 'POST',
  path: '/runs/cancel',
  summary: 'Cancel several runs',
  description: 'Either all runs with a status, or the given runs of one thread.',
  access: runAccess,
  rule: async ({ query, body }, authorizer, proceed) => {
    const threadId = (body.thread_id as string | null | undefined)?.toLowerCase();
    const value = { thread_id: threadId ?? null, action: query.action ?? 'interrupt' };
    if (threadId !== undefined)
      await authorizer.authorizeRow('threads:update', threadId, value, createThreadNotFoundError(threadId));
    else {
      const { required } = await authorizer.allow('threads:update', value);
      authorizer.deps.access.threads = { required, metadata: {} };
    }
    return proceed();
  },
  errors: ['INVALID_REQUEST', 'THREAD_NOT_FOUND', 'RUN_NOT_FOUND', 'RUN_ENDED'],
  schema: {
    query: Type.Object({ action: Type.Optional(CancelAction) }),
    body: ClosedObject({
      status: optional(OneOf(['pending', 'running', 'all'])),
      thread_id: optional(Uuid()),
      run_ids: optional(Type.Array(Uuid(), { minItems: 1, maxItems: 10_000 })),
    }),
    response: { 204: Type.Null() },
  },
  handler: async ({ query, body, services: { agents }, request }) => {
    const { status, thread_id: threadId, run_ids: runIds } = body;
    const namedRuns = threadId && runIds ? { threadId, runIds } : undefined;
    const specifiedCount = [status, threadId, runIds].filter((value) => value).length;
    const selection = status ? { status, ofThreads: request.agentAccess?.threads?.required } : namedRuns;
    if (selection === undefined || specifiedCount !== (status ? 1 : 2)) throw createFormError();
    await cancelSeveral(agents.database, agents.deploymentId, selection, query.action ?? 'interrupt');
    agents.wake();
    return null;
  },
});

function createFormError() {
  const msg = 'must have either status, or thread_id and run_ids';
  return runlakeError('INVALID_REQUEST', {}, { fields: [{ loc: ['body'], msg, type: 'one_of' }] });
}

const deleteAgentRun = defineAgentOperation({
  operationId: 'deleteAgentRun',
  method: 'DELETE',
  path: '/threads/:thread_id/runs/:run_id',
  summary: 'Delete a run',
  description: 'The state that it stored in its thread stays. Cancel a running run first.',
  access: runAccess,
  rule: createRunRule('threads:delete'),
  errors: ['RUN_NOT_FOUND', 'THREAD_BUSY'],
  schema: { params: ThreadRunParams, response: { 204: Type.Null() } },
  handler: async ({ params, services: { agents } }) => {
    await remove(agents.database, agents.deploymentId, normaliseRunIds(params));
    return null;
  },
});

export const cancelRunOperations = [deleteAgentRun, cancelAgentRun, cancelAgentRuns];
