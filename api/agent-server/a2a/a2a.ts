import { isJsonObject } from '../../../infra/json/json-value.ts';
import { type Assistant, resolveAssistant } from '../../../pipelines/agents/assistants/assistant.ts';
import { awaitRunEnd } from '../../../pipelines/agents/runs/await-run-end.ts';
import { describeGraph } from '../../../pipelines/agents/schemas/describe-graph.ts';
import { JsonObject } from '../../server/formats.ts';
import { createLiveBody, type LiveSource } from '../../server/live-body.ts';
import { RawResponse } from '../../server/operation.ts';
import { getAgentServerBase } from '../../server/public-base.ts';
import {
  type AgentInput,
  defineAgentOperation,
  graphErrors,
  readAccess,
  requireProtocol,
  runAccess,
} from '../agent-operation.ts';
import { AssistantParams, JsonValue } from '../agent-schema.ts';
import { acceptsEventStream, buildLiveOptions, createEventStream, eventStreamHeaders } from '../streaming/sse.ts';
import {
  A2aError,
  GetParams,
  internalError,
  isCustomAuthError,
  type RpcError,
  readParams,
  SendParams,
  toRpcError,
} from './a2a-params.ts';
import { cancelTask as cancel, readRunTask, readTask, startTask, streamTask, type Task } from './a2a-task.ts';
import { getWireFormat, type WireFormat } from './wire-format.ts';

const postA2a = defineAgentOperation({
  operationId: 'postA2a',
  method: 'POST',
  path: '/a2a/:assistant_id',
  summary: 'Send a message to an assistant (Agent2Agent protocol 1.0 and 0.3)',
  description:
    'JSON-RPC 2.0: SendMessage, SendStreamingMessage (server-sent events), GetTask and CancelTask; in 0.3 message/send, message/stream, tasks/get and tasks/cancel. A context is a thread, a task is a run. Errors of methods are JSON-RPC errors with status 200.',
  access: runAccess,
  // Sending a message also requires the authorisation for `waitForRun`, and reading a task that for `getAgentRun`.
  rule: async ({ params }, authorizer, proceed) => {
    await authorizer.authorizeUseAssistant(params.assistant_id as string);
    return proceed();
  },
  errorStyle: 'json-rpc',
  errors: ['ROUTE_NOT_FOUND', 'ASSISTANT_NOT_FOUND'],
  schema: {
    params: AssistantParams,
    body: JsonValue({ description: 'A JSON-RPC 2.0 request.' }),
    response: { 200: JsonValue({ description: 'A JSON-RPC 2.0 response.' }) },
  },
  handler: async (input) => {
    const { params, body, request, services } = input;
    const { agents } = services;
    requireProtocol(agents, 'a2a', request);
    const assistant = await resolveAssistant(agents.database, agents.deploymentId, params.assistant_id);
    const id = isJsonObject(body) && (typeof body.id === 'string' || typeof body.id === 'number') ? body.id : null;
    const buildInvalidRequestResponse = (message: string) =>
      buildResponse(id, { error: { code: -32600, message } }, 400);
    if (request.headers.accept === undefined) return buildInvalidRequestResponse('The header Accept is missing.');
    if (!isJsonObject(body) || body.jsonrpc !== '2.0' || typeof body.method !== 'string' || (body.id ?? null) !== id) {
      return buildInvalidRequestResponse('The body is not a JSON-RPC 2.0 request.');
    }
    try {
      const version = request.headers['a2a-version'];
      const format = getWireFormat(body.method, typeof version === 'string' ? version : undefined);
      if (format.method === 'message/stream' && !acceptsEventStream(request.headers.accept)) {
        return buildInvalidRequestResponse(
          `${body.method} responds with text/event-stream, which the header Accept does not include.`,
        );
      }
      return await callMethod({ ...input, assistant, id, format }, body.method, body.params);
    } catch (err) {
      if (isCustomAuthError(err)) throw err;
      const error = toRpcError(err);
      if (error === undefined) request.log.warn({ err }, 'Agent2Agent request failed');
      return buildResponse(id, { error: error ?? internalError });
    }
  },
});

type Id = string | number | null;

interface MethodCall extends AgentInput {
  readonly assistant: Assistant;
  readonly id: Id;
  readonly format: WireFormat;
}

async function callMethod(input: MethodCall, method: string, params: unknown): Promise<RawResponse> {
  switch (input.format.method) {
    case 'message/send':
      return sendMessage(input, params);
    case 'message/stream':
      return streamMessage(input, params);
    case 'tasks/get':
      return buildResponse(input.id, { result: input.format.writeTask(await getTask(input, params)) });
    case 'tasks/cancel':
      return buildResponse(input.id, { result: input.format.writeTask(await cancelTask(input, params)) });
    case 'tasks/list':
    case 'tasks/resubscribe':
    case 'agent/getAuthenticatedExtendedCard':
      throw new A2aError('unsupported', `${method} is not supported.`);
    default:
      if (input.format.method.startsWith('tasks/pushNotificationConfig/')) {
        throw new A2aError('pushNotSupported', 'Push notifications are not supported.');
      }
      throw new A2aError('methodNotFound', `Unknown method ${method.slice(0, 100)}.`);
  }
}

/**
 * Responds to `message/send`. Sends line feeds to keep the connection open until the task has ended or needs input. If
 * the server stops first, the response contains the current state of the task.
 */
async function sendMessage(input: MethodCall, params: unknown): Promise<RawResponse> {
  const { agents } = input.services;
  const sendParams = readParams(SendParams, input.format.readSendParams(params));
  const { reader, ...ids } = await startTask(input, input.assistant, sendParams);
  const historyLength = sendParams.configuration?.historyLength ?? 10;
  if (sendParams.configuration?.blocking === false) {
    reader.close();
    return buildResponse(input.id, {
      result: input.format.writeResponse(await readRunTask(agents, ids, { historyLength })),
    });
  }
  const body = createLiveBody<string>({
    ...createStoppableSource(input, async function* (signal) {
      await awaitRunEnd(agents, { deploymentId: agents.deploymentId, ...ids }, { attached: reader, signal });
      const task = await readRunTask(agents, ids, { historyLength });
      yield formatRpcResponse(input.id, { result: input.format.writeResponse(task) });
    }),
    encode: (text) => [text],
    heartbeat: '\n',
    encodeServerStop: undefined,
    encodeSourceError: (err) => {
      input.request.log.warn({ err }, 'reading the task failed');
      return Buffer.from(formatRpcResponse(input.id, { error: toRpcError(err) ?? internalError }));
    },
  });
  return new RawResponse({ headers: { 'content-type': 'application/json' }, body });
}

async function streamMessage(input: MethodCall, params: unknown): Promise<RawResponse> {
  const sendParams = readParams(SendParams, input.format.readSendParams(params));
  const task = await startTask(input, input.assistant, sendParams);
  const body = createEventStream<string>({
    ...createStoppableSource(input, async function* (signal) {
      try {
        for await (const result of streamTask(input.services.agents, task, signal))
          yield formatRpcResponse(input.id, { result: input.format.writeStreamed(result) });
      } catch (err) {
        input.request.log.warn({ err }, 'streaming the task failed');
        yield formatRpcResponse(input.id, { error: toRpcError(err) ?? internalError });
      }
    }),
    frame: (text) => ({ data: Buffer.from(text) }),
    clientReconnects: false,
  });
  return new RawResponse({ headers: eventStreamHeaders, body });
}

function getTask(input: MethodCall, params: unknown): Promise<Task> {
  return readTask(input, input.assistant, readTaskParams(params));
}

/** Cancels a task, and returns it when it has ended. */
async function cancelTask(input: MethodCall, params: unknown): Promise<Task> {
  return cancel(input, await getTask(input, params));
}

function readTaskParams(params: unknown) {
  const { id, taskId, contextId, historyLength } = readParams(GetParams, params);
  const runId = (id ?? taskId)?.toLowerCase();
  if (!runId) throw new A2aError('invalidParams', 'params.id: must be the id of a task');
  return { runId, context: contextId?.toLowerCase(), historyLength: historyLength ?? 10 };
}

/**
 * Wraps `items` as a live source. `items` receives an abort signal and must return when it is aborted, that is, when
 * the server stops or the body is closed.
 */
function createStoppableSource(input: MethodCall, generateItems: (signal: AbortSignal) => AsyncGenerator<string>) {
  const closeController = new AbortController();
  const signal = AbortSignal.any([closeController.signal, input.request.server.drainStarted]);
  const source: LiveSource<string> = {
    [Symbol.asyncIterator]: () => generateItems(signal),
    close: () => closeController.abort(),
  };
  return { ...buildLiveOptions(input), source, stopping: new AbortController().signal };
}

type Outcome = { readonly result: object } | { readonly error: RpcError };

function formatRpcResponse(id: Id, outcome: Outcome): string {
  return JSON.stringify({ jsonrpc: '2.0', id, ...outcome });
}

function buildResponse(id: Id, outcome: Outcome, status = 200): RawResponse {
  const headers = { 'content-type': 'application/json' };
  return new RawResponse({ status, headers, body: Buffer.from(formatRpcResponse(id, outcome)) });
}

/** In both forms: that of 0.3, and that of 1.0. */
const apiKeySecurity = {
  securitySchemes: {
    apiKey: {
      ...{ type: 'apiKey', in: 'header', name: 'x-api-key' },
      apiKeySecurityScheme: { location: 'header', name: 'x-api-key' },
    },
  },
  security: [{ apiKey: [] }],
  securityRequirements: [{ schemes: { apiKey: { list: [] } } }],
};
const mediaTypes = ['application/json', 'text/plain'];

const getAgentCard = defineAgentOperation({
  operationId: 'getAgentCard',
  method: 'GET',
  path: '/.well-known/agent-card.json',
  summary: 'Get the agent card of an assistant (Agent2Agent protocol 1.0 and 0.3)',
  access: readAccess,
  rule: async ({ query }, authorizer, proceed) => {
    await authorizer.authorizeReadAssistant(query.assistant_id as string);
    return proceed();
  },
  errors: ['ROUTE_NOT_FOUND', ...graphErrors],
  schema: { query: AssistantParams, response: { 200: JsonObject() } },
  handler: async ({ query, request, services: { agents } }) => {
    requireProtocol(agents, 'a2a', request);
    const assistant = await resolveAssistant(agents.database, agents.deploymentId, query.assistant_id);
    const { assistant_id: id, graph_id: graphId, name, config, version } = assistant;
    const { input_schema } = await describeGraph(agents, graphId, config);
    const description = assistant.description ?? `The assistant ${name}`;
    const url = `${getAgentServerBase(request, agents.config)}/a2a/${id}`;
    const agentCard = {
      name,
      description,
      supportedInterfaces: ['1.0', '0.3'].map((protocolVersion) => ({
        ...{ url, protocolBinding: 'JSONRPC', protocolVersion },
      })),
      // The next three are for clients of 0.3.
      ...{ protocolVersion: '0.3.0', url, preferredTransport: 'JSONRPC' },
      capabilities: { streaming: true, pushNotifications: false, stateTransitionHistory: false },
      defaultInputModes: mediaTypes,
      defaultOutputModes: mediaTypes,
      // The authentication scheme of custom authentication is defined by project code and unknown here.
      ...(request.agentAccess === undefined && apiKeySecurity),
      skills: [
        {
          id: `${id}-main`,
          name,
          description,
          tags: ['assistant', graphId],
          examples: [],
          inputModes: mediaTypes,
          outputModes: mediaTypes,
          metadata: { inputSchema: input_schema },
        },
      ],
      version: String(version),
    };
    return new RawResponse({ body: agentCard });
  },
});

export const a2aOperations = [postA2a, getAgentCard];
