import { Type } from 'typebox';
import { requestFollowedRun } from '../../../pipelines/agents/runs/request-run.ts';
import { defineAgentOperation, runs } from '../agent-operation.ts';
import { streamOfRun } from '../streaming/answer-of-run.ts';
import { RunBody, runErrors, runRequestOf } from './run-body.ts';
import { followed, ThreadParams } from './run-paths.ts';

const shared = {
  method: 'POST',
  access: runs,
  errors: runErrors,
  description:
    'Server-sent events; the body ends when the final state is stored. The first event is `metadata` with run_id and attempt. With `stream_resumable`, a client can reconnect to `Location` with `Last-Event-ID`.',
} as const;
const response = { response: { 200: Type.String() }, produces: 'text/event-stream' } as const;

export const streamRun = defineAgentOperation({
  ...shared,
  operationId: 'streamRun',
  path: '/threads/:thread_id/runs/stream',
  tag: 'thread runs',
  summary: 'Start a run on a thread and stream its events',
  schema: { params: ThreadParams, body: RunBody, ...response },
  handler: async (input) => {
    const followedRun = await requestFollowedRun(input.services.agents, runRequestOf(input));
    return streamOfRun(input, followed(followedRun, 'thread', 'stream'), followedRun);
  },
});

export const streamStatelessRun = defineAgentOperation({
  ...shared,
  operationId: 'streamStatelessRun',
  path: '/runs/stream',
  tag: 'stateless runs',
  summary: 'Start a run without a thread and stream its events',
  schema: { body: RunBody, ...response },
  handler: async (input) => {
    const followedRun = await requestFollowedRun(input.services.agents, runRequestOf(input));
    return streamOfRun(input, followed(followedRun, 'stateless', 'stream'), followedRun);
  },
});
