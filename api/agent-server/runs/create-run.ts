import { shownRun } from '../../../pipelines/agents/runs/read-run.ts';
import { requestRun } from '../../../pipelines/agents/runs/request-run.ts';
import { Answer } from '../../server/operation.ts';
import { defineAgentOperation, runs } from '../agent-operation.ts';
import { Run, RunBody, runErrors, runRequestOf } from './run-body.ts';
import { runPath, ThreadParams } from './run-paths.ts';

const shared = { method: 'POST', access: runs, errors: runErrors } as const;

export const createRun = defineAgentOperation({
  ...shared,
  operationId: 'createRun',
  path: '/threads/:thread_id/runs',
  tag: 'thread runs',
  summary: 'Start a run on a thread, in the background',
  schema: { params: ThreadParams, body: RunBody, response: { 200: Run } },
  handler: async (input) => {
    const { run } = await requestRun(input.services.agents, runRequestOf(input));
    return new Answer({ headers: { 'content-location': runPath(run, false) }, body: shownRun(run) });
  },
});

export const createStatelessRun = defineAgentOperation({
  ...shared,
  operationId: 'createStatelessRun',
  path: '/runs',
  tag: 'stateless runs',
  summary: 'Start a run without a thread, in the background',
  schema: { body: RunBody, response: { 200: Run } },
  handler: async (input) => {
    const { run } = await requestRun(input.services.agents, runRequestOf(input));
    return new Answer({ headers: { 'content-location': runPath(run, true) }, body: shownRun(run) });
  },
});
