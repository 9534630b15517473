import { Type } from 'typebox';
import { shownRun } from '../../../pipelines/agents/runs/read-run.ts';
import { requestRun, requireBatchWithin } from '../../../pipelines/agents/runs/request-run.ts';
import { Answer } from '../../server/operation.ts';
import { defineAgentOperation, runs } from '../agent-operation.ts';
import { BatchBody, Run, runErrors, runRequestOf, snakeCased } from './run-body.ts';

export const createRunBatch = defineAgentOperation({
  operationId: 'createRunBatch',
  method: 'POST',
  path: '/runs/batch',
  tag: 'stateless runs',
  summary: 'Start several runs without a thread, in the background',
  description: 'Runs are created in order. If one fails, the runs before it stay.',
  access: runs,
  errors: [...runErrors, 'ANSWER_TOO_LARGE'],
  schema: { body: BatchBody, response: { 200: Type.Array(Run) } },
  handler: async ({ body, caller, request, services: { agents } }) => {
    const requests = body.map((each) => runRequestOf({ caller, request, body: snakeCased(each) }));
    await requireBatchWithin(agents.database, agents.deploymentId, requests, agents.config.maxPageBytes);
    const made = [];
    for (const each of requests) made.push(shownRun((await requestRun(agents, each)).run));
    return new Answer({ body: made });
  },
});
