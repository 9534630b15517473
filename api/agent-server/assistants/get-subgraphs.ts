import { Type } from 'typebox';
import { resolveAssistant } from '../../../pipelines/agents/assistants/assistant.ts';
import { describeSubgraphs } from '../../../pipelines/agents/schemas/describe-graph.ts';
import { Answer } from '../../server/operation.ts';
import { defineAgentOperation, reads } from '../agent-operation.ts';
import { AssistantParams } from '../agent-schema.ts';
import type { Agents } from '../agent-services.ts';
import { graphErrors } from '../graph-errors.ts';
import { graphSchemas, schemasWaitMs } from './get-schemas.ts';

const query = Type.Object({
  recurse: Type.Boolean({ default: false, description: 'Include subgraphs of subgraphs.' }),
});
const response = { 200: Type.Record(Type.String(), Type.Object(graphSchemas)) };
const described = { tag: 'assistants', method: 'GET', access: reads, errors: graphErrors } as const;

export const getAssistantSubgraphs = defineAgentOperation({
  ...described,
  operationId: 'getAssistantSubgraphs',
  path: '/assistants/:assistant_id/subgraphs',
  summary: 'Get the schemas of the subgraphs of an assistant, by namespace',
  schema: { params: AssistantParams, query, response },
  handler: async ({ params, query: { recurse }, services: { agents } }) =>
    ask(agents, params.assistant_id, { recurse }),
});

export const getAssistantSubgraph = defineAgentOperation({
  ...described,
  operationId: 'getAssistantSubgraph',
  path: '/assistants/:assistant_id/subgraphs/:namespace',
  summary: 'Get the schemas of the subgraphs of an assistant in one namespace',
  schema: {
    params: Type.Object({ ...AssistantParams.properties, namespace: Type.String({ minLength: 1 }) }),
    query,
    response,
  },
  handler: async ({ params: { assistant_id: id, namespace }, query: { recurse }, services: { agents } }) =>
    ask(agents, id, { recurse, namespace }),
});

async function ask(agents: Agents, id: string, which: { readonly recurse: boolean; readonly namespace?: string }) {
  const { graph_id: graphId, config } = await resolveAssistant(agents.database, agents.deploymentId, id);
  return new Answer({ body: await describeSubgraphs(agents, graphId, { config, ...which }, schemasWaitMs) });
}
