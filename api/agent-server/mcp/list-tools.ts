import type { ListToolsResult, Tool } from '@modelcontextprotocol/sdk/types.js';
import { ErrorCode, McpError } from '@modelcontextprotocol/sdk/types.js';
import { isRunlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Assistant } from '../../../pipelines/agents/assistants/assistant.ts';
import type { AssistantFilter } from '../../../pipelines/agents/assistants/count-assistants.ts';
import { searchAssistants } from '../../../pipelines/agents/assistants/search-assistants.ts';
import { systemAssistantId } from '../../../pipelines/agents/assistants/system-assistant.ts';
import { describeGraph } from '../../../pipelines/agents/schemas/describe-graph.ts';
import { asOperation } from '../access/as-operation.ts';
import type { Agents } from '../agent-services.ts';
import type { McpInput } from './call-tool.ts';
import { toolInputSchema } from './tool-input-schema.ts';
import { type NamedAssistant, toolNames } from './tool-names.ts';

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
export async function findTools<Field extends keyof Assistant>(
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
