import { Type } from 'typebox';
import { requestFollowedRun } from '../../../pipelines/agents/runs/request-run.ts';
import { defineAgentOperation, runs } from '../agent-operation.ts';
import { streamOfRun } from '../streaming/answer-of-run.ts';
import { RunBody } from './run-body.ts';
import { followed, ThreadParams } from './run-paths.ts';
import { runErrors, runRequestOf } from './run-request-of.ts';

const shared = {
  method: 'POST',
  access: runs,
  errors: runErrors,
  description:
    'Server-sent events; the body ends when the final state is stored. The first event is `metadata` with run_id and attempt. A client that gives `stream_resumable` may come back to `Location` with `Last-Event-ID`.',
} as const;
const response = { response: { 200: Type.String() }, produces: 'text/event-stream' } as const;

export const streamRun = defineAgentOperation({
  ...shared,
  operationId: 'streamRun',
  path: '/threads/:thread_id/runs/stream',
  tag: 'thread runs',
  summary: 'Start a run on a thread and stream what it gives',
  schema: { params: ThreadParams, body: RunBody, ...response },
  handler: async (input) => {
    const made = await requestFollowedRun(input.services.agents, runRequestOf(input));
    return streamOfRun(input, followed(made, 'thread', 'stream'), made);
  },
});

export const streamStatelessRun = defineAgentOperation({
  ...shared,
  operationId: 'streamStatelessRun',
  path: '/runs/stream',
  tag: 'stateless runs',
  summary: 'Start a run without a thread and stream what it gives',
  schema: { body: RunBody, ...response },
  handler: async (input) => {
    const made = await requestFollowedRun(input.services.agents, runRequestOf(input));
    return streamOfRun(input, followed(made, 'stateless', 'stream'), made);
  },
});
