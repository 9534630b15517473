import {
  type CallToolRequest,
  type CallToolResult,
  ErrorCode,
  type ListToolsResult,
  McpError,
  type Tool,
} from '@modelcontextprotocol/sdk/types.js';
import type { FastifyRequest } from 'fastify';
import { isRunlakeError } from '../../../infra/errors/runlake-error.ts';
import { type Assistant, systemAssistantId } from '../../../pipelines/agents/assistants/assistant.ts';
import { type AssistantFilter, searchAssistants } from '../../../pipelines/agents/assistants/read-assistants.ts';
import { awaitRunEnd } from '../../../pipelines/agents/runs/await-run-end.ts';
import { cancelRun } from '../../../pipelines/agents/runs/cancel-run.ts';
import { requestFollowedRun } from '../../../pipelines/agents/runs/request-run.ts';
import { describeGraph } from '../../../pipelines/agents/schemas/describe-graph.ts';
import type { Caller } from '../../../pipelines/tenants/caller.ts';
import { asOperation } from '../access/as-operation.ts';
import type { AgentServices, Agents } from '../agent-services.ts';
import { runRequestOf } from '../runs/run-body.ts';

type Schema = Readonly<Record<string, unknown>>;

/**
 * Converts the input schema of a graph to that of a tool. It is always an object, because arguments are; a graph
 * without a schema accepts any.
 */
function toolInputSchema(schema: unknown): Tool['inputSchema'] {
  if (!isObject(schema)) return { type: 'object', additionalProperties: true };
  const { properties, required, ...rest } = { ...schema, ...resolveReference(schema) };
  return {
    ...rest,
    type: 'object',
    ...(isObject(properties) && {
      properties: Object.fromEntries(
        Object.entries(properties).map(([name, property]) => [name, isObject(property) ? property : {}]),
      ),
    }),
    ...(Array.isArray(required) && { required: required.map(String) }),
  };
}

/** Resolves a schema that consists only of a reference to one of its definitions. */
function resolveReference(root: Schema): Schema {
  if (typeof root.$ref !== 'string' || !root.$ref.startsWith('#/')) return {};
  const target = root.$ref
    .slice(2)
    .split('/')
    .reduce<unknown>((location, name) => (isObject(location) ? location[name] : undefined), root);
  return isObject(target) ? { ...target, $ref: undefined } : {};
}

function isObject(value: unknown): value is Schema {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

type NamedAssistant = Pick<Assistant, 'assistant_id' | 'name'>;

const maxNameLength = 64;

/**
 * Maps assistants by tool name: letters, digits, `_` and `-`, at most 64 characters. If several have the same name, the
 * first keeps it; the others get the end of their id as a suffix.
 */
function toolNames<Named extends NamedAssistant>(assistants: readonly Named[]): ReadonlyMap<string, Named> {
  const byName = new Map<string, Named>();
  for (const assistant of assistants) {
    const { name, assistant_id: id } = assistant;
    const legal = name.replace(/[^\w-]/g, '_').slice(0, maxNameLength) || 'assistant';
    const end = `-${id.slice(-12)}`;
    const names = [legal, `${legal.slice(0, maxNameLength - end.length)}${end}`, id];
    byName.set(names.find((candidate) => !byName.has(candidate)) ?? id, assistant);
  }
  return byName;
}

/** The oldest assistants come first, so that tool names stay stable when assistants are added. */
const maxTools = 1_000;
const toolsPerPage = 100;

/**
 * Returns the tools that the caller can use, by name: the assistants of graphs, which everyone can use, and those that
 * a search finds.
 *
 * @param fields further fields of the assistants
 * @throws ANSWER_TOO_LARGE; AUTH_FORBIDDEN and other access errors if the caller must not search
 */
async function findTools<Field extends keyof Assistant>(
  { services, request }: McpInput,
  fields: readonly Field[],
): Promise<ReadonlyMap<string, Pick<Assistant, Field | keyof NamedAssistant>>> {
  const { database, deploymentId, graphs, config } = services.agents;
  const ofGraphs = Object.keys(graphs).map(systemAssistantId);
  const select = ['assistant_id', 'name', ...fields] as const;
  const page = { limit: maxTools, offset: 0, select, limitBytes: config.maxPageBytes };
  const search = { sortBy: 'created_at', sortOrder: 'asc', besides: ofGraphs, ...page } as const;
  let found: readonly Pick<Assistant, Field | keyof NamedAssistant>[] = [];
  await asOperation(request, 'searchAssistants', { body: {} }, async ({ body }: { readonly body: AssistantFilter }) => {
    found = (await searchAssistants(database, deploymentId, { ...search, ...body })).assistants;
  });
  return toolNames(found);
}

/**
 * Returns a page of tools, without those of unusable graphs. @param cursor index of the first tool, from the previous
 * response.
 */
export async function listTools(input: McpInput, cursor: string | undefined): Promise<ListToolsResult> {
  const { agents } = input.services;
  const first = Number(cursor ?? 0);
  if (!Number.isSafeInteger(first) || first < 0) throw new McpError(ErrorCode.InvalidParams, 'Unknown cursor');
  const all = [...(await findTools(input, ['graph_id', 'config', 'description']))];
  const schemas = new Map<string, Promise<Tool['inputSchema'] | undefined>>();
  const tools: Tool[] = [];
  for (const [name, { graph_id: graphId, config, description }] of all.slice(first, first + toolsPerPage)) {
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
  const next = first + toolsPerPage;
  return { tools, ...(next < all.length && { nextCursor: String(next) }) };
}

/** Returns undefined if the graph is unusable. @throws GRAPH_WORKER_BUSY */
async function readInputSchema(
  agents: Agents,
  graphId: string,
  config: object,
): Promise<Tool['inputSchema'] | undefined> {
  try {
    return toolInputSchema((await describeGraph(agents, graphId, config)).input_schema);
  } catch (error) {
    if (isRunlakeError(error) && error.class === 'caller') return undefined;
    throw error;
  }
}

export interface McpInput {
  readonly caller: Caller;
  readonly request: FastifyRequest;
  readonly services: AgentServices;
}

/**
 * Runs the assistant of a tool without a thread and returns its output. If `signal` is aborted before the end, the run
 * is cancelled.
 */
export async function callTool(
  input: McpInput,
  { name, arguments: args = {} }: CallToolRequest['params'],
  signal: AbortSignal,
): Promise<CallToolResult> {
  const { agents } = input.services;
  const assistant = (await findTools(input, [])).get(name);
  if (assistant === undefined) throw new McpError(ErrorCode.InvalidParams, `Unknown tool: ${name.slice(0, 100)}`);
  try {
    const body = { assistant_id: assistant.assistant_id, input: args };
    const { run, reader } = await asOperation(input.request, 'waitForStatelessRun', { body }, (part) =>
      requestFollowedRun(agents, runRequestOf({ ...input, ...part })),
    );
    const awaited = { deploymentId: agents.deploymentId, threadId: run.thread_id, runId: run.run_id };
    try {
      const text = await awaitRunEnd(agents, awaited, { attached: reader, signal });
      return text === undefined ? failure('The call was cancelled.') : buildResult(text);
    } finally {
      reader.close();
      if (signal.aborted) await stop(input, awaited);
    }
  } catch (error) {
    if (isRunlakeError(error) && error.class === 'caller') return failure(error.message);
    throw error;
  }
}

async function stop(
  { services: { agents }, request }: McpInput,
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
  const output: unknown = JSON.parse(text);
  if (typeof output !== 'object' || output === null || Array.isArray(output))
    return { content: [{ type: 'text', text }] };
  if ('__error__' in output) {
    const { error, message } = output.__error__ as { readonly error: string; readonly message: string };
    return failure(`${error}: ${message}`);
  }
  return { content: [{ type: 'text', text }], structuredContent: { ...output } };
}

function failure(text: string): CallToolResult {
  return { content: [{ type: 'text', text }], isError: true };
}
