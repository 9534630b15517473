import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import {
  type CallToolRequest,
  CallToolRequestSchema,
  type CallToolResult,
  ErrorCode,
  ListToolsRequestSchema,
  type ListToolsResult,
  McpError,
  type Tool,
} from '@modelcontextprotocol/sdk/types.js';
import { Type } from 'typebox';
import { isRunlakeError } from '../../infra/errors/runlake-error.ts';
import { isJsonObject, toJsonObject } from '../../infra/json/json-value.ts';
import { type Assistant, computeSystemAssistantId } from '../../pipelines/agents/assistants/assistant.ts';
import { type AssistantFilter, searchAssistants as search } from '../../pipelines/agents/assistants/read-assistants.ts';
import { awaitRunEnd } from '../../pipelines/agents/runs/await-run-end.ts';
import { cancelRun } from '../../pipelines/agents/runs/cancel-run.ts';
import { requestFollowedRun } from '../../pipelines/agents/runs/request-run.ts';
import { describeGraph } from '../../pipelines/agents/schemas/describe-graph.ts';
import { maxStateValues, parseAnswer } from '../../pipelines/agents/workers/front/parse-answer.ts';
import {
  answerWithoutSession,
  handleMcp,
  mcpServerOptions,
  setMcpHandlers,
  withMcpErrors,
} from '../server/mcp-http.ts';
import { releaseVersion } from '../server/release.ts';
import { createRouteNotFoundError } from '../server/unserved-routes.ts';
import { executeRequestPart } from './access/agent-access.ts';
import type { Values } from './access/authorizer.ts';
import { allowAllRule } from './access/rules.ts';
import { type AgentInput, type Agents, defineAgentOperation, requireProtocol, runAccess } from './agent-operation.ts';
import { JsonValue } from './agent-schema.ts';
import { searchAssistants } from './assistants.ts';
import { waitForStatelessRun } from './runs/create.ts';
import { toRunRequest } from './runs/run-schema.ts';

const postMcp = defineAgentOperation({
  operationId: 'postMcp',
  method: 'POST',
  path: '/mcp',
  summary: 'Use assistants as tools (Model Context Protocol)',
  description:
    'Streamable HTTP without sessions: initialize, ping, tools/list and tools/call, with JSON responses. Each assistant is a tool. A call is a run without a thread; closing the connection cancels it.',
  access: runAccess,
  // Tools are authorised like the operations that they correspond to.
  rule: allowAllRule,
  errors: ['ROUTE_NOT_FOUND'],
  errorStyle: 'json-rpc',
  schema: {
    body: JsonValue({ description: 'A JSON-RPC 2.0 message, or a list of messages.' }),
    response: {
      200: JsonValue({ description: 'A JSON-RPC 2.0 response.' }),
      202: Type.Null(),
      406: JsonValue({
        description: 'A JSON-RPC error: the header Accept must include both application/json and text/event-stream.',
      }),
    },
  },
  handler: async (input) => {
    const { request, services, body } = input;
    requireProtocol(services.agents, 'mcp', request);
    const { agentsHeartbeatMs: heartbeatMs } = services.agents.config;
    return answerWithoutSession(createServer(input), { request, body, heartbeatMs });
  },
});

const deleteMcp = defineAgentOperation({
  operationId: 'deleteMcp',
  method: 'DELETE',
  path: '/mcp',
  summary: 'End a session of the Model Context Protocol',
  description: 'Always 404: the server has no sessions.',
  access: runAccess,
  rule: allowAllRule,
  errors: ['ROUTE_NOT_FOUND'],
  schema: { response: { 404: Type.Object({ detail: Type.String() }) } },
  handler: async ({ request }) => {
    throw createRouteNotFoundError(request);
  },
});

function createServer(input: AgentInput): Server {
  const server = new Server(
    { name: 'runlake', version: releaseVersion },
    { ...mcpServerOptions, capabilities: { tools: {} } },
  );
  setMcpHandlers(server, {
    'tools/list': handleMcp(ListToolsRequestSchema, (params) =>
      withMcpErrors(input.request.log, listTools(input, params?.cursor)),
    ),
    'tools/call': handleMcp(CallToolRequestSchema, (params, { signal }) =>
      withMcpErrors(input.request.log, callTool(input, params, signal)),
    ),
  });
  return server;
}

/**
 * Converts the input schema of a graph to the input schema of a tool. The result always describes an object, because
 * the arguments of a tool are an object. If the graph has no schema, the tool accepts any object.
 */
function toToolInputSchema(schema: unknown): Tool['inputSchema'] {
  if (!isJsonObject(schema)) return { type: 'object', additionalProperties: true };
  const { properties, required, ...rest } = { ...schema, ...resolveReference(schema) };
  return {
    ...rest,
    type: 'object',
    ...(isJsonObject(properties) && {
      properties: Object.fromEntries(
        Object.entries(properties).map(([name, property]) => [name, toJsonObject(property)]),
      ),
    }),
    ...(Array.isArray(required) && { required: required.map(String) }),
  };
}

/** Resolves a schema that consists only of a reference to one of its own definitions. */
function resolveReference(rootSchema: Values): Values {
  if (typeof rootSchema.$ref !== 'string' || !rootSchema.$ref.startsWith('#/')) return {};
  const target = rootSchema.$ref
    .slice(2)
    .split('/')
    .reduce<unknown>((location, name) => (isJsonObject(location) ? location[name] : undefined), rootSchema);
  return isJsonObject(target) ? { ...target, $ref: undefined } : {};
}

type NamedAssistant = Pick<Assistant, 'assistant_id' | 'name'>;

const maxNameLength = 64;

/**
 * Returns the assistants by tool name. A tool name has at most 64 characters: letters, digits, `_` and `-`. If several
 * assistants have the same name, the first assistant keeps it, and part of the assistant's id is appended to each of
 * the other names.
 */
function nameTools<Named extends NamedAssistant>(assistants: readonly Named[]): ReadonlyMap<string, Named> {
  const byName = new Map<string, Named>();
  for (const assistant of assistants) {
    const { name, assistant_id: id } = assistant;
    const validName = name.replace(/[^\w-]/g, '_').slice(0, maxNameLength) || 'assistant';
    const end = `-${id.slice(-12)}`;
    const names = [validName, `${validName.slice(0, maxNameLength - end.length)}${end}`, id];
    byName.set(names.find((candidate) => !byName.has(candidate)) ?? id, assistant);
  }
  return byName;
}

/**
 * Maximum number of tools. The oldest assistants come first, so that tool names stay the same when assistants are
 * added.
 */
const maxTools = 1_000;
const toolsPerPage = 100;

/**
 * Returns the tools that the caller can use, by name. These are the assistants that the server creates for graphs,
 * which every caller can use, and the assistants that a search finds.
 *
 * @param fields further fields of the assistants
 * @throws ANSWER_TOO_LARGE; AUTH_FORBIDDEN and other access errors if the caller must not search
 */
async function findTools<Field extends keyof Assistant>(
  { services, request }: AgentInput,
  fields: readonly Field[],
): Promise<ReadonlyMap<string, Pick<Assistant, Field | keyof NamedAssistant>>> {
  const { database, deploymentId, graphs, config } = services.agents;
  const graphAssistantIds = Object.keys(graphs).map(computeSystemAssistantId);
  const select = ['assistant_id', 'name', ...fields] as const;
  const page = { limit: maxTools, offset: 0, select, limitBytes: config.maxPageBytes };
  const searchOptions = {
    sortBy: 'created_at',
    sortOrder: 'asc',
    alwaysIncludedIds: graphAssistantIds,
    ...page,
  } as const;
  let foundAssistants: readonly Pick<Assistant, Field | keyof NamedAssistant>[] = [];
  await executeRequestPart(
    request,
    searchAssistants,
    { body: {} },
    async ({ body }: { readonly body: AssistantFilter }) => {
      foundAssistants = (await search(database, deploymentId, { ...searchOptions, ...body })).assistants;
    },
  );
  return nameTools(foundAssistants);
}

/**
 * Returns a page of tools. Omits tools whose graph is unusable.
 *
 * @param cursor index of the first tool, from the previous response.
 */
async function listTools(input: AgentInput, cursor: string | undefined): Promise<ListToolsResult> {
  const { agents } = input.services;
  const firstIndex = Number(cursor ?? 0);
  if (!Number.isSafeInteger(firstIndex) || firstIndex < 0)
    throw new McpError(ErrorCode.InvalidParams, 'Unknown cursor');
  const all = [...(await findTools(input, ['graph_id', 'config', 'description']))];
  const schemas = new Map<string, Promise<Tool['inputSchema'] | undefined>>();
  const tools: Tool[] = [];
  for (const [name, { graph_id: graphId, config, description }] of all.slice(firstIndex, firstIndex + toolsPerPage)) {
    const key = JSON.stringify([graphId, config]);
    const schema = schemas.get(key) ?? readInputSchema(agents, graphId, config);
    schemas.set(key, schema);
    const inputSchema = await schema;
    if (inputSchema === undefined) continue;
    tools.push({
      name,
      inputSchema,
      description: description || `Runs the assistant '${name}' of the graph '${graphId}'`,
    });
  }
  const next = firstIndex + toolsPerPage;
  return { tools, ...(next < all.length && { nextCursor: String(next) }) };
}

/** Reads the input schema of a graph. Returns undefined if the graph is unusable. @throws GRAPH_WORKER_BUSY */
async function readInputSchema(
  agents: Agents,
  graphId: string,
  config: object,
): Promise<Tool['inputSchema'] | undefined> {
  try {
    return toToolInputSchema((await describeGraph(agents, graphId, config)).input_schema);
  } catch (error) {
    if (isRunlakeError(error) && error.class === 'caller') return undefined;
    throw error;
  }
}

/**
 * Runs the assistant of a tool without a thread and returns the output. If `signal` is aborted before the run ends, the
 * run is cancelled.
 */
async function callTool(
  input: AgentInput,
  { name, arguments: args = {} }: CallToolRequest['params'],
  signal: AbortSignal,
): Promise<CallToolResult> {
  const { agents } = input.services;
  const assistant = (await findTools(input, [])).get(name);
  if (assistant === undefined) throw new McpError(ErrorCode.InvalidParams, `Unknown tool: ${name.slice(0, 100)}`);
  try {
    const body = { assistant_id: assistant.assistant_id, input: args };
    const { run, reader } = await executeRequestPart(input.request, waitForStatelessRun, { body }, (part) =>
      requestFollowedRun(agents, toRunRequest({ ...input, ...part })),
    );
    const awaitedRun = { deploymentId: agents.deploymentId, threadId: run.thread_id, runId: run.run_id };
    try {
      const text = await awaitRunEnd(agents, awaitedRun, { attached: reader, signal });
      return text === undefined ? buildFailure('The call was cancelled.') : buildResult(text);
    } finally {
      reader.close();
      if (signal.aborted) await cancelToolRun(input, awaitedRun);
    }
  } catch (error) {
    if (isRunlakeError(error) && error.class === 'caller') return buildFailure(error.message);
    throw error;
  }
}

async function cancelToolRun(
  { services: { agents }, request }: AgentInput,
  run: { readonly threadId: string; readonly runId: string },
): Promise<void> {
  await cancelRun(agents.database, agents.deploymentId, run, 'interrupt').catch((err) => {
    // The run has already ended.
    if (isRunlakeError(err) && err.code === 'RUN_NOT_FOUND') return;
    request.log.warn({ err, runId: run.runId }, 'cancelling a run after its client disconnected failed');
  });
  agents.wake();
}

function buildResult(text: string): CallToolResult {
  const output = parseAnswer<unknown>(text, maxStateValues);
  if (typeof output !== 'object' || output === null || Array.isArray(output))
    return { content: [{ type: 'text', text }] };
  if ('__error__' in output) {
    const { error, message } = output.__error__ as { readonly error: string; readonly message: string };
    return buildFailure(`${error}: ${message}`);
  }
  return { content: [{ type: 'text', text }], structuredContent: { ...output } };
}

function buildFailure(text: string): CallToolResult {
  return { content: [{ type: 'text', text }], isError: true };
}

export const mcpOperations = [postMcp, deleteMcp];
