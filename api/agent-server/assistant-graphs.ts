import { Type } from 'typebox';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { Dictionary } from '../../infra/json/dictionary.ts';
import { describeGraph, describeSubgraphs } from '../../pipelines/agents/schemas/describe-graph.ts';
import { JsonObject, optional } from '../server/formats.ts';
import { RawResponse } from '../server/operation.ts';
import { type Agents, defineAgentOperation, graphErrors, readAccess } from './agent-operation.ts';
import { AssistantParams, buildJsonResponse } from './agent-schema.ts';
import { createAssistantRule, readAssistant } from './assistants.ts';

const graphOperation = {
  method: 'GET',
  access: readAccess,
  rule: createAssistantRule('assistants:read'),
  errors: graphErrors,
} as const;

const getAssistantGraph = defineAgentOperation({
  ...graphOperation,
  operationId: 'getAssistantGraph',
  path: '/assistants/:assistant_id/graph',
  summary: 'Get the nodes and edges of the graph of an assistant',
  schema: {
    params: AssistantParams,
    query: Type.Object({
      xray: Type.String({ default: 'false', description: 'Expand subgraphs: a boolean, or the number of levels.' }),
    }),
    response: { 200: Type.Object({ nodes: Type.Array(JsonObject()), edges: Type.Array(JsonObject()) }) },
  },
  handler: async ({ params, query, services: { agents } }) => {
    const xray = parseDepth(query.xray);
    const { graph_id: graphId, config } = await readAssistant(agents, params);
    return buildJsonResponse(await agents.pool.query({ kind: 'drawing', graphId, config, xray }));
  },
});

function parseDepth(text: string): boolean | number {
  if (/^(?:true|yes|on)$/i.test(text)) return true;
  if (/^(?:false|no|off|0)$/i.test(text)) return false;
  if (/^\d{1,4}$/.test(text)) return Number(text);
  const field = { loc: ['query', 'xray'], msg: 'must be a boolean or a number of levels', type: 'boolean_type' };
  throw runlakeError('INVALID_REQUEST', {}, { fields: [field] });
}

/** Maximum time that a request waits for the schemas of a graph. */
const maxSchemasWaitMs = 10_000;

const graphSchemas = {
  input_schema: optional(JsonObject()),
  output_schema: optional(JsonObject()),
  state_schema: optional(JsonObject()),
  config_schema: optional(JsonObject()),
  context_schema: optional(JsonObject()),
};

const getAssistantSchemas = defineAgentOperation({
  ...graphOperation,
  operationId: 'getAssistantSchemas',
  path: '/assistants/:assistant_id/schemas',
  summary: 'Get the JSON schemas of the input, state and output of an assistant',
  description:
    'From the run-time schemas of the graph (zod), otherwise from its TypeScript types. The server reads the types in the background ' +
    `after its start, with the compiler of the project; meanwhile the request waits for at most ${maxSchemasWaitMs / 1_000} s. ` +
    'Null if there is no schema, or not yet.',
  schema: {
    params: AssistantParams,
    response: { 200: Type.Object({ graph_id: Type.String(), ...graphSchemas }) },
  },
  handler: async ({ params, services: { agents } }) => {
    const { graph_id: graphId, config } = await readAssistant(agents, params);
    return new RawResponse({ body: await describeGraph(agents, graphId, config, maxSchemasWaitMs) });
  },
});

const subgraphQuery = Type.Object({
  recurse: Type.Boolean({ default: false, description: 'Include subgraphs of subgraphs.' }),
});
const subgraphResponse = { 200: Dictionary(Type.Object(graphSchemas)) };

const getAssistantSubgraphs = defineAgentOperation({
  ...graphOperation,
  operationId: 'getAssistantSubgraphs',
  path: '/assistants/:assistant_id/subgraphs',
  summary: 'Get the schemas of the subgraphs of an assistant, by namespace',
  schema: { params: AssistantParams, query: subgraphQuery, response: subgraphResponse },
  handler: async ({ params, query, services: { agents } }) => listSubgraphs(agents, params, query),
});

const getAssistantSubgraph = defineAgentOperation({
  ...graphOperation,
  operationId: 'getAssistantSubgraph',
  path: '/assistants/:assistant_id/subgraphs/:namespace',
  summary: 'Get the schemas of the subgraphs of an assistant in one namespace',
  schema: {
    params: Type.Object({ ...AssistantParams.properties, namespace: Type.String({ minLength: 1 }) }),
    query: subgraphQuery,
    response: subgraphResponse,
  },
  handler: async ({ params, query, services: { agents } }) => listSubgraphs(agents, params, query),
});

async function listSubgraphs(
  agents: Agents,
  params: { readonly assistant_id: string; readonly namespace?: string },
  { recurse }: { readonly recurse: boolean },
): Promise<RawResponse> {
  const { graph_id: graphId, config } = await readAssistant(agents, params);
  const { namespace } = params;
  const selection = { config, recurse, ...(namespace !== undefined && { namespace }) };
  return new RawResponse({ body: await describeSubgraphs(agents, graphId, selection, maxSchemasWaitMs) });
}

export const assistantGraphOperations = [
  getAssistantGraph,
  getAssistantSchemas,
  getAssistantSubgraphs,
  getAssistantSubgraph,
];
