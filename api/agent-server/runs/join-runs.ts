import type { FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import { followRun } from '../../../pipelines/agents/runs/await-run-end.ts';
import { findThreadOfRun, readRun } from '../../../pipelines/agents/runs/read-run.ts';
import type { Caller } from '../../../pipelines/tenants/caller.ts';
import { Uuid } from '../../server/formats.ts';
import type { Answer } from '../../server/operation.ts';
import { defineAgentOperation, reads } from '../agent-operation.ts';
import { JsonValue } from '../agent-schema.ts';
import type { AgentServices } from '../agent-services.ts';
import { endOfRun, streamOfRun } from '../streaming/answer-of-run.ts';
import { LastEventId, readRunFrom } from '../streaming/sse.ts';
import { requireCancelPermission } from './may-cancel.ts';
import { StreamMode } from './run-body.ts';
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

const query = Type.Object({
  stream_mode: Type.Optional(Type.Array(StreamMode, { description: 'Only events of these modes.' })),
  cancel_on_disconnect: Type.Boolean({ default: false }),
  last_event_id: LastEventId,
  checkpoint_id: Type.Optional(
    Type.String({ maxLength: 1_000, description: 'Checkpoint of the state that the reader has. Has no effect.' }),
  ),
});

const shared = {
  method: 'GET',
  access: reads,
  errors: ['RUN_NOT_FOUND'],
  description:
    'Server-sent events from now on. With `Last-Event-ID`, also the earlier events after that one, if the run has `stream_resumable`. The body ends when the final state is stored.',
} as const;
const response = { response: { 200: Type.String() }, produces: 'text/event-stream' } as const;

export const joinRunStream = defineAgentOperation({
  ...shared,
  operationId: 'joinRunStream',
  path: '/threads/:thread_id/runs/:run_id/stream',
  tag: 'thread runs',
  summary: 'Stream the events of a run',
  schema: { params: ThreadRunParams, query, ...response },
  handler: async (input) => join(input, idsOf(input.params), false),
});

export const joinStatelessRunStream = defineAgentOperation({
  ...shared,
  operationId: 'joinStatelessRunStream',
  path: '/runs/:run_id/stream',
  tag: 'stateless runs',
  summary: 'Stream the events of a run by its id',
  schema: { params: Type.Object({ run_id: Uuid() }), query, ...response },
  handler: async (input) => {
    const { agents } = input.services;
    const runId = input.params.run_id.toLowerCase();
    const threadId = await findThreadOfRun(agents.database, agents.deploymentId, runId);
    return join(input, { threadId, runId }, true);
  },
});

interface JoinInput {
  readonly caller: Caller;
  readonly query: {
    readonly stream_mode?: readonly string[];
    readonly cancel_on_disconnect: boolean;
    readonly last_event_id?: string;
  };
  readonly services: AgentServices;
  readonly request: FastifyRequest;
}

async function join(
  input: JoinInput,
  ids: { readonly threadId: string; readonly runId: string },
  stateless: boolean,
): Promise<Answer> {
  const { query, caller, services, request } = input;
  requireCancelPermission(caller, query.cancel_on_disconnect);
  const { reader, run } = await followRun(services.agents, ids, readRunFrom(request, query));
  const path = runPath(run, stateless);
  const followed = {
    ...{ deploymentId: services.agents.deploymentId, ...ids, path },
    cancelOnDisconnect: query.cancel_on_disconnect,
    reconnectTo: run.kwargs.resumable ? `${path}/stream` : undefined,
  };
  return streamOfRun(input, followed, { reader, modes: query.stream_mode });
}
