import { requestFollowedRun } from '../../../pipelines/agents/runs/request-run.ts';
import { defineAgentOperation, runs } from '../agent-operation.ts';
import { JsonValue } from '../agent-schema.ts';
import { endOfRun } from '../streaming/answer-of-run.ts';
import { RunBody } from './run-body.ts';
import { followed, ThreadParams } from './run-paths.ts';
import { runErrors, runRequestOf } from './run-request-of.ts';

const shared = {
  method: 'POST',
  access: runs,
  errors: runErrors,
  description:
    'Line feeds keep the connection open until the final state is there. A run that failed is answered with 200, too: `{"__error__": {"error", "message"}}`.',
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
    const made = await requestFollowedRun(input.services.agents, runRequestOf(input));
    return endOfRun(input, followed(made, 'thread', 'join'), made.reader);
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
    const made = await requestFollowedRun(input.services.agents, runRequestOf(input));
    return endOfRun(input, followed(made, 'stateless', 'join'), made.reader);
  },
});
