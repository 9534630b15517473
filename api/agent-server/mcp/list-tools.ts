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

/** The oldest come first, so that names stay when assistants are added. */
const mostTools = 1_000;
const toolsOfPage = 100;

/**
 * Every tool that the caller may use, by its name: the assistants of the graphs, which are for all, and those that a search finds.
 *
 * @param fields what else of them is needed
 * @throws ANSWER_TOO_LARGE; AUTH_FORBIDDEN and so on, where the caller may not search
 */
export async function toolsOf<Field extends keyof Assistant>(
  { services, request }: McpInput,
  fields: readonly Field[],
): Promise<ReadonlyMap<string, Pick<Assistant, Field | keyof NamedAssistant>>> {
  const { database, deploymentId, graphs, config } = services.agents;
  const ofGraphs = Object.keys(graphs).map(systemAssistantId);
  const select = ['assistant_id', 'name', ...fields] as const;
  const page = { limit: mostTools, offset: 0, select, limitBytes: config.maxPageBytes };
  const search = { sortBy: 'created_at', sortOrder: 'asc', besides: ofGraphs, ...page } as const;
  let found: readonly Pick<Assistant, Field | keyof NamedAssistant>[] = [];
  await asOperation(request, 'searchAssistants', { body: {} }, async ({ body }: { readonly body: AssistantFilter }) => {
    found = (await searchAssistants(database, deploymentId, { ...search, ...body })).assistants;
  });
  return toolNames(found);
}

/** One page of tools; graphs that cannot be used make none. @param cursor number of the first, as an answer before gave it. */
export async function listTools(input: McpInput, cursor: string | undefined): Promise<ListToolsResult> {
  const { agents } = input.services;
  const first = Number(cursor ?? 0);
  if (!Number.isSafeInteger(first) || first < 0) throw new McpError(ErrorCode.InvalidParams, 'Unknown cursor');
  const all = [...(await toolsOf(input, ['graph_id', 'config', 'description']))];
  const schemas = new Map<string, Promise<Tool['inputSchema'] | undefined>>();
  const tools: Tool[] = [];
  for (const [name, { graph_id: graphId, config, description }] of all.slice(first, first + toolsOfPage)) {
    const key = JSON.stringify([graphId, config]);
    const schema = schemas.get(key) ?? schemaOf(agents, graphId, config);
    schemas.set(key, schema);
    const inputSchema = await schema;
    if (inputSchema === undefined) continue;
    tools.push({
      name,
      inputSchema,
      description: description || `Runs the assistant '${name}' of the graph '${graphId}'`,
    });
  }
  const next = first + toolsOfPage;
  return { tools, ...(next < all.length && { nextCursor: String(next) }) };
}

/** Undefined where the graph cannot be used. @throws GRAPH_WORKER_BUSY */
async function schemaOf(agents: Agents, graphId: string, config: object): Promise<Tool['inputSchema'] | undefined> {
  try {
    return toolInputSchema((await describeGraph(agents, graphId, config)).input_schema);
  } catch (error) {
    if (isRunlakeError(error) && error.class === 'caller') return undefined;
    throw error;
  }
}
