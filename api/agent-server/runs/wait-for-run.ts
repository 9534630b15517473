import { requestFollowedRun } from '../../../pipelines/agents/runs/request-run.ts';
import { defineAgentOperation, runs } from '../agent-operation.ts';
import { JsonValue } from '../agent-schema.ts';
import { endOfRun } from '../streaming/answer-of-run.ts';
import { RunBody, runErrors, runRequestOf } from './run-body.ts';
import { followed, ThreadParams } from './run-paths.ts';

const shared = {
  method: 'POST',
  access: runs,
  errors: runErrors,
  description:
    'Line feeds keep the connection open until the final state is stored. A failed run also results in 200: `{"__error__": {"error", "message"}}`.',
} as const;
const response = { 200: JsonValue({ description: 'The final state.' }) };

export const waitForRun = defineAgentOperation({
  ...shared,
  operationId: 'waitForRun',
  path: '/threads/:thread_id/runs/wait',
  tag: 'thread runs',
  summary: 'Start a run on a thread and wait for its final state',
  schema: { params: ThreadParams, body: RunBody, response },
  handler: async (input) => {
    const followedRun = await requestFollowedRun(input.services.agents, runRequestOf(input));
    return endOfRun(input, followed(followedRun, 'thread', 'join'), followedRun.reader);
  },
});

export const waitForStatelessRun = defineAgentOperation({
  ...shared,
  operationId: 'waitForStatelessRun',
  path: '/runs/wait',
  tag: 'stateless runs',
  summary: 'Start a run without a thread and wait for its final state',
  schema: { body: RunBody, response },
  handler: async (input) => {
    const followedRun = await requestFollowedRun(input.services.agents, runRequestOf(input));
    return endOfRun(input, followed(followedRun, 'stateless', 'join'), followedRun.reader);
  },
});
