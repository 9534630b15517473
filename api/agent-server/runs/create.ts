import { type Static, Type } from 'typebox';
import { formatRun } from '../../../pipelines/agents/runs/read-run.ts';
import {
  type RequestedRun,
  type RequestedRunResult,
  requestFollowedRun,
  requestRun,
  requestRuns,
  requireBatchSize,
} from '../../../pipelines/agents/runs/request-run.ts';
import type { RunRequest } from '../../../pipelines/agents/runs/run-request.ts';
import { JsonObject } from '../../server/formats.ts';
import { RawResponse } from '../../server/operation.ts';
import { executeRequestPart } from '../access/agent-access.ts';
import type { Values } from '../access/authorizer.ts';
import { allowAllRule, type Rule } from '../access/rules.ts';
import { type AgentInput, defineAgentOperation, runAccess } from '../agent-operation.ts';
import { ClosedObject, JsonValue, ThreadParams } from '../agent-schema.ts';
import { type FollowedRun, respondWithRunEnd, streamRunEvents } from '../streaming/run-response.ts';
import { buildRunPath, Run, RunBody, toRunRequest } from './run-schema.ts';

const runCreationRule: Rule = async (input, authorizer, proceed) => {
  const threadId = input.params?.thread_id?.toLowerCase();
  const metadata = await authorizer.authorizeNewRun(threadId, input.body as Values & { assistant_id: string });
  return proceed({ body: { ...input.body, metadata } });
};

const creationOperation = {
  method: 'POST',
  access: runAccess,
  rule: runCreationRule,
  errors: [
    'ASSISTANT_NOT_FOUND',
    'THREAD_NOT_FOUND',
    'THREAD_BUSY',
    'CHECKPOINT_NOT_FOUND',
    'GRAPH_NODE_UNKNOWN',
    'FIELD_NOT_BUILT',
    'WEBHOOK_INVALID',
    'FEEDBACK_ADDRESS_UNSET',
  ],
} as const;

interface RunInput extends AgentInput {
  readonly body: RunRequest;
  readonly params?: { readonly thread_id: string } | undefined;
}

type RunKind = 'thread' | 'stateless';

const createRun = defineAgentOperation({
  ...creationOperation,
  operationId: 'createRun',
  path: '/threads/:thread_id/runs',
  summary: 'Start a run on a thread, in the background',
  schema: { params: ThreadParams, body: RunBody, response: { 200: Run } },
  handler: (input) => create(input, 'thread'),
});

const createStatelessRun = defineAgentOperation({
  ...creationOperation,
  operationId: 'createStatelessRun',
  path: '/runs',
  summary: 'Start a run without a thread, in the background',
  schema: { body: RunBody, response: { 200: Run } },
  handler: (input) => create(input, 'stateless'),
});

async function create(input: RunInput, kind: RunKind): Promise<RawResponse> {
  const { run } = await requestRun(input.services.agents, toRunRequest(input));
  return new RawResponse({
    headers: { 'content-location': buildRunPath(run, kind === 'stateless') },
    body: formatRun(run),
  });
}

const streamOperation = {
  ...creationOperation,
  unsupported: { query: ['namespace'] },
  description:
    'Server-sent events; the body ends when the final state is stored. The first event is `metadata` with run_id and attempt. An event `warning` with error and message replaces an event that is too large or not JSON. If these are the last values of the run, an event `error` with error and message follows for readers of `values`. With `stream_resumable`, a client can reconnect to `Location` with `Last-Event-ID`.',
} as const;
const eventStreamSchema = { response: { 200: Type.String() }, produces: 'text/event-stream' } as const;

const streamRun = defineAgentOperation({
  ...streamOperation,
  operationId: 'streamRun',
  path: '/threads/:thread_id/runs/stream',
  summary: 'Start a run on a thread and stream its events',
  schema: { params: ThreadParams, body: RunBody, ...eventStreamSchema },
  handler: (input) => stream(input, 'thread'),
});

const streamStatelessRun = defineAgentOperation({
  ...streamOperation,
  operationId: 'streamStatelessRun',
  path: '/runs/stream',
  summary: 'Start a run without a thread and stream its events',
  schema: { body: RunBody, ...eventStreamSchema },
  handler: (input) => stream(input, 'stateless'),
});

async function stream(input: RunInput, kind: RunKind): Promise<RawResponse> {
  const requestedRun = await requestFollowedRun(input.services.agents, toRunRequest(input));
  const path = buildRunPath(requestedRun.run, kind === 'stateless');
  // `-1` applies to a client that has not received any event. A client that sends the id of its last event continues
  // after that event, without a gap.
  const reconnectTo = requestedRun.run.kwargs.resumable ? `${path}/stream?last_event_id=-1` : undefined;
  return streamRunEvents(input, toFollowedRun(requestedRun, path, reconnectTo), requestedRun);
}

const waitOperation = {
  ...creationOperation,
  description:
    'Line feeds keep the connection open until the final state is stored. A failed run also results in 200: `{"__error__": {"error", "message"}}`.',
} as const;
const finalState = { 200: JsonValue({ description: 'The final state.' }) };

export const waitForRun = defineAgentOperation({
  ...waitOperation,
  operationId: 'waitForRun',
  path: '/threads/:thread_id/runs/wait',
  summary: 'Start a run on a thread and wait for its final state',
  schema: { params: ThreadParams, body: RunBody, response: finalState },
  handler: (input) => wait(input, 'thread'),
});

export const waitForStatelessRun = defineAgentOperation({
  ...waitOperation,
  operationId: 'waitForStatelessRun',
  path: '/runs/wait',
  summary: 'Start a run without a thread and wait for its final state',
  schema: { body: RunBody, response: finalState },
  handler: (input) => wait(input, 'stateless'),
});

async function wait(input: RunInput, kind: RunKind): Promise<RawResponse> {
  const requestedRun = await requestFollowedRun(input.services.agents, toRunRequest(input));
  const path = buildRunPath(requestedRun.run, kind === 'stateless');
  // Clients cannot reconnect to a stateless run, because the run may be deleted when it ends.
  return respondWithRunEnd(
    input,
    toFollowedRun(requestedRun, path, kind === 'thread' ? `${path}/join` : undefined),
    requestedRun.reader,
  );
}

/**
 * Converts a created run to a run that a response can follow. Adds the path of the run and the path for reconnecting to
 * it.
 */
function toFollowedRun(
  { run, deploymentId, cancelOnDisconnect }: RequestedRunResult,
  path: string,
  reconnectTo: string | undefined,
): FollowedRun {
  return { deploymentId, threadId: run.thread_id, runId: run.run_id, cancelOnDisconnect, path, reconnectTo };
}

/**
 * Maps camelCase names to field names. In a batch, the JavaScript client sends the request bodies as its caller wrote
 * them: with camelCase names, and with the field `signal`, which only the client uses.
 */
const camelCaseFields = Object.fromEntries(
  Object.entries(RunBody.properties)
    .filter(([name]) => name.includes('_'))
    .map(([name, schema]) => [toCamelCase(name), Type.Optional(schema)]),
);
const clientOnlyFields = { signal: Type.Optional(JsonObject({ description: 'Used only by the client.' })) };

const BatchBody = Type.Array(
  Type.Unsafe<Static<typeof RunBody>>(
    ClosedObject({ ...camelCaseFields, ...clientOnlyFields, ...RunBody.properties }, ['thread_id', 'threadId']),
  ),
  { minItems: 1, maxItems: 1_000 },
);

/** Converts a request body of a batch to the field names that other requests use. */
function toSnakeCase(body: Static<typeof RunBody>): RunRequest {
  const values: Readonly<Record<string, unknown>> = { ...body };
  const renamedFields = Object.keys(RunBody.properties)
    .filter((name) => values[name] === undefined && values[toCamelCase(name)] !== undefined)
    .map((name) => [name, values[toCamelCase(name)]]);
  return { ...body, ...Object.fromEntries(renamedFields) };
}

function toCamelCase(name: string): string {
  return name.replace(/_(\w)/g, (_, character: string) => character.toUpperCase());
}

const createRunBatch = defineAgentOperation({
  ...creationOperation,
  operationId: 'createRunBatch',
  path: '/runs/batch',
  summary: 'Start several runs without a thread, in the background',
  description: 'Runs are created in order. If one cannot be created, none is.',
  // The handler authorises each run.
  rule: allowAllRule,
  errors: [...creationOperation.errors, 'ANSWER_TOO_LARGE'],
  schema: { body: BatchBody, response: { 200: Type.Array(Run) } },
  handler: async ({ body, caller, request, services: { agents } }) => {
    const requests: RequestedRun[] = [];
    for (const runBody of body) {
      await executeRequestPart(request, createStatelessRun, { body: { ...toSnakeCase(runBody) } }, async (part) => {
        requests.push(toRunRequest({ caller, request, ...part }));
      });
    }
    await requireBatchSize(agents.database, agents.deploymentId, requests, agents.config.maxPageBytes);
    return new RawResponse({ body: (await requestRuns(agents, requests)).map(formatRun) });
  },
});

export const createRunOperations = [createRun, streamRun, waitForRun];
export const createStatelessRunOperations = [
  createStatelessRun,
  streamStatelessRun,
  waitForStatelessRun,
  createRunBatch,
];
