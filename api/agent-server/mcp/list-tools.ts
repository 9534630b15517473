import type { ListToolsResult, Tool } from '@modelcontextprotocol/sdk/types.js';
import { ErrorCode, McpError } from '@modelcontextprotocol/sdk/types.js';
import { isRunlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Assistant } from '../../../pipelines/agents/assistants/assistant.ts';
import { searchAssistants } from '../../../pipelines/agents/assistants/search-assistants.ts';
import { describeGraph } from '../../../pipelines/agents/schemas/describe-graph.ts';
import type { Agents } from '../agent-services.ts';
import { toolInputSchema } from './tool-input-schema.ts';
import { toolNames } from './tool-names.ts';

/** The oldest come first, so that names stay when assistants are added. */
const mostTools = 1_000;
const toolsOfPage = 100;

/** Every tool of the deployment by its name. */
export async function toolsOf({ database, organizationId }: Agents): Promise<ReadonlyMap<string, Assistant>> {
  const search = { sortBy: 'created_at', sortOrder: 'asc', limit: mostTools, offset: 0 } as const;
  return toolNames((await searchAssistants(database, organizationId, search)).assistants);
}

/** One page of tools; graphs that cannot be used make none. @param cursor number of the first, as an answer before gave it. */
export async function listTools(agents: Agents, cursor: string | undefined): Promise<ListToolsResult> {
  const first = Number(cursor ?? 0);
  if (!Number.isSafeInteger(first) || first < 0) throw new McpError(ErrorCode.InvalidParams, 'Unknown cursor');
  const all = [...(await toolsOf(agents))];
  const schemas = new Map<string, Promise<Tool['inputSchema'] | undefined>>();
  const tools: Tool[] = [];
  for (const [name, { graph_id: graphId, config, description }] of all.slice(first, first + toolsOfPage)) {
    const key = JSON.stringify([graphId, config]);
    const schema = schemas.get(key) ?? schemaOf(agents, graphId, config);
    schemas.set(key, schema);
    const inputSchema = await schema;
    if (inputSchema !== undefined) tools.push({ name, inputSchema, ...(description !== null && { description }) });
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
