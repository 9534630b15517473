import { Type } from 'typebox';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { cancelRuns as cancel } from '../../../pipelines/agents/runs/cancel-run.ts';
import { optional, Uuid } from '../../server/formats.ts';
import { defineAgentOperation, runs } from '../agent-operation.ts';
import { Closed, words } from '../agent-schema.ts';
import '../access/agent-access.ts';
import { CancelAction } from './cancel-run.ts';

export const cancelAgentRuns = defineAgentOperation({
  operationId: 'cancelAgentRuns',
  method: 'POST',
  path: '/runs/cancel',
  tag: 'thread runs',
  summary: 'Cancel several runs',
  description: 'Either all runs with a status, or the given runs of one thread.',
  access: runs,
  errors: ['INVALID_REQUEST', 'THREAD_NOT_FOUND', 'RUN_NOT_FOUND', 'RUN_ENDED'],
  schema: {
    query: Type.Object({ action: Type.Optional(CancelAction) }),
    body: Closed({
      status: optional(words(['pending', 'running', 'all'])),
      thread_id: optional(Uuid()),
      run_ids: optional(Type.Array(Uuid(), { minItems: 1, maxItems: 10_000 })),
    }),
    response: { 204: Type.Null() },
  },
  handler: async ({ query, body, services: { agents }, request }) => {
    const { status, thread_id: threadId, run_ids: runIds } = body;
    const named = threadId && runIds ? { threadId, runIds } : undefined;
    const given = [status, threadId, runIds].filter((value) => value).length;
    const which = status ? { status, ofThreads: request.agentAccess?.threads?.required } : named;
    if (which === undefined || given !== (status ? 1 : 2)) throw notOneForm();
    await cancel(agents.database, agents.deploymentId, which, query.action ?? 'interrupt');
    agents.wake();
    return null;
  },
});

function notOneForm() {
  const msg = 'must have either status, or thread_id and run_ids';
  return runlakeError('INVALID_REQUEST', {}, { fields: [{ loc: ['body'], msg, type: 'one_of' }] });
}
