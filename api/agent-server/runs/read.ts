import { Type } from 'typebox';
import { followRun } from '../../../pipelines/agents/runs/await-run-end.ts';
import { findThreadOfRun, formatRun, listRuns as list, readRun } from '../../../pipelines/agents/runs/read-run.ts';
import { type Run as RunRecord, runStatuses } from '../../../pipelines/agents/runs/run.ts';
import { readThreadHead } from '../../../pipelines/agents/threads/thread.ts';
import { type Caller, requirePermission } from '../../../pipelines/tenants/caller.ts';
import { OneOf, Uuid } from '../../server/formats.ts';
import type { RawResponse } from '../../server/operation.ts';
import { createThreadRule, type Rule } from '../access/rules.ts';
import { type AgentInput, defineAgentOperation, readAccess } from '../agent-operation.ts';
import { JsonValue, selectFields, ThreadParams } from '../agent-schema.ts';
import { respondWithRunEnd, streamRunEvents } from '../streaming/run-response.ts';
import { LastEventId, readRunStartPosition } from '../streaming/sse.ts';
import {
  buildRunPath,
  createRunRule,
  normaliseRunIds,
  Run,
  runFields,
  SelectedRun,
  StreamMode,
  ThreadRunParams,
} from './run-schema.ts';

const listRuns = defineAgentOperation({
  operationId: 'listRuns',
  method: 'GET',
  path: '/threads/:thread_id/runs',
  summary: 'List the runs of a thread, newest first',
  access: readAccess,
  rule: createThreadRule('threads:read'),
  errors: ['THREAD_NOT_FOUND', 'ANSWER_TOO_LARGE', 'OVERLOADED'],
  schema: {
    params: ThreadParams,
    query: Type.Object({
      limit: Type.Integer({ minimum: 1, maximum: 1_000, default: 10 }),
      offset: Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER, default: 0 }),
      status: Type.Optional(OneOf(runStatuses)),
      select: Type.Optional(Type.Array(OneOf(runFields))),
    }),
    response: { 200: Type.Array(SelectedRun) },
  },
  handler: async ({ params, query, services: { agents } }) => {
    const { database, deploymentId, config } = agents;
    const { limit, offset, status, select } = query;
    const { thread_id: threadId } = await readThreadHead(database, deploymentId, params.thread_id);
    const neededFields = select?.includes('langsmith_session_name') ? [...select, 'kwargs'] : select;
    const page = { limit, offset, ...(status && { status }), select: neededFields as (keyof RunRecord)[] | undefined };
    const rows = await list(database, deploymentId, threadId, { ...page, limitBytes: config.maxPageBytes });
    return rows.map((run) => selectFields(run.kwargs ? formatRun(run) : run, select));
  },
});

export const getAgentRun = defineAgentOperation({
  operationId: 'getAgentRun',
  method: 'GET',
  path: '/threads/:thread_id/runs/:run_id',
  summary: 'Get a run',
  access: readAccess,
  rule: createRunRule('threads:read'),
  errors: ['RUN_NOT_FOUND'],
  schema: { params: ThreadRunParams, response: { 200: Run } },
  handler: async ({ params, services: { agents } }) =>
    formatRun(await readRun(agents.database, agents.deploymentId, normaliseRunIds(params))),
});

/**
 * Authorises joining a run. With `cancel_on_disconnect`, the reader can cancel the run and therefore also needs
 * `threads:update`.
 */
const runJoinRule: Rule = async (input, authorizer, proceed) => {
  if (input.query.cancel_on_disconnect) await createRunRule('threads:update')(input, authorizer, async () => undefined);
  return createRunRule('threads:read')(input, authorizer, proceed);
};

/**
 * Checks the permission to cancel runs if `cancelOnDisconnect` is set, because a read-only key must not cancel a run by
 * disconnecting.
 *
 * @throws FORBIDDEN
 */
function requireCancelPermission(caller: Caller, cancelOnDisconnect: boolean): void {
  if (cancelOnDisconnect) requirePermission(caller, 'agents:run');
}

const joinOperation = { method: 'GET', access: readAccess, rule: runJoinRule, errors: ['RUN_NOT_FOUND'] } as const;

const joinRun = defineAgentOperation({
  ...joinOperation,
  operationId: 'joinRun',
  path: '/threads/:thread_id/runs/:run_id/join',
  summary: 'Wait for the final state of a run',
  description:
    'The response is that of runs/wait. With `cancel_on_disconnect` the run is cancelled if this connection closes before the run ends.',
  schema: {
    params: ThreadRunParams,
    query: Type.Object({ cancel_on_disconnect: Type.Boolean({ default: false }) }),
    response: { 200: JsonValue({ description: 'The final state.' }) },
  },
  handler: async (input) => {
    const { cancel_on_disconnect: cancelOnDisconnect } = input.query;
    const { database, deploymentId } = input.services.agents;
    requireCancelPermission(input.caller, cancelOnDisconnect);
    const ids = normaliseRunIds(input.params);
    const path = buildRunPath(await readRun(database, deploymentId, ids), false);
    return respondWithRunEnd(input, { deploymentId, ...ids, path, cancelOnDisconnect, reconnectTo: `${path}/join` });
  },
});

const joinStreamOperation = {
  ...joinOperation,
  unsupported: { query: ['namespace'] },
  description:
    'Server-sent events from now on. With `Last-Event-ID`, also the earlier events after that one, if the run has `stream_resumable`. The body ends when the final state is stored.',
} as const;
const eventStreamSchema = {
  query: Type.Object({
    stream_mode: Type.Optional(Type.Array(StreamMode, { description: 'Only events of these modes.' })),
    cancel_on_disconnect: Type.Boolean({ default: false }),
    last_event_id: LastEventId,
    checkpoint_id: Type.Optional(
      Type.String({ maxLength: 1_000, description: 'Checkpoint of the state that the reader has. Has no effect.' }),
    ),
  }),
  response: { 200: Type.String() },
  produces: 'text/event-stream',
} as const;

const joinRunStream = defineAgentOperation({
  ...joinStreamOperation,
  operationId: 'joinRunStream',
  path: '/threads/:thread_id/runs/:run_id/stream',
  summary: 'Stream the events of a run',
  schema: { params: ThreadRunParams, ...eventStreamSchema },
  handler: (input) => joinStream(input, normaliseRunIds(input.params), false),
});

export const joinStatelessRunStream = defineAgentOperation({
  ...joinStreamOperation,
  operationId: 'joinStatelessRunStream',
  path: '/runs/:run_id/stream',
  summary: 'Stream the events of a run by its id',
  rule: async (input, authorizer, proceed) => {
    const runId = (input.params.run_id as string).toLowerCase();
    const threadId = await findThreadOfRun(authorizer.deps.database, authorizer.deps.deploymentId, runId);
    return runJoinRule({ ...input, params: { thread_id: threadId, run_id: runId } }, authorizer, proceed);
  },
  schema: { params: Type.Object({ run_id: Uuid() }), ...eventStreamSchema },
  handler: async (input) => {
    const { database, deploymentId } = input.services.agents;
    const runId = input.params.run_id.toLowerCase();
    return joinStream(input, { threadId: await findThreadOfRun(database, deploymentId, runId), runId }, true);
  },
});

interface JoinInput extends AgentInput {
  readonly query: {
    readonly stream_mode?: readonly string[];
    readonly cancel_on_disconnect: boolean;
    readonly last_event_id?: string;
  };
}

async function joinStream(
  input: JoinInput,
  ids: { readonly threadId: string; readonly runId: string },
  stateless: boolean,
): Promise<RawResponse> {
  const { query, caller, request } = input;
  const { agents } = input.services;
  const { cancel_on_disconnect: cancelOnDisconnect } = query;
  requireCancelPermission(caller, cancelOnDisconnect);
  const { reader, run } = await followRun(agents, ids, readRunStartPosition(request, query));
  const path = buildRunPath(run, stateless);
  const reconnectTo = run.kwargs.resumable ? `${path}/stream` : undefined;
  const followedRun = { deploymentId: agents.deploymentId, ...ids, path, cancelOnDisconnect, reconnectTo };
  return streamRunEvents(input, followedRun, { reader, modes: query.stream_mode });
}

export const readRunOperations = [listRuns, getAgentRun, joinRun, joinRunStream];
