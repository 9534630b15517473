import { Type } from 'typebox';
import { resolveAssistant } from '../../../pipelines/agents/assistants/resolve-assistant.ts';
import { describeGraph } from '../../../pipelines/agents/schemas/describe-graph.ts';
import { JsonObject, optional } from '../../server/formats.ts';
import { Answer } from '../../server/operation.ts';
import { defineAgentOperation, reads } from '../agent-operation.ts';
import { AssistantParams } from '../agent-schema.ts';
import { graphErrors } from '../graph-errors.ts';

/** How long a request waits while the schemas of its graph are being read. */
export const schemasWaitMs = 10_000;

export const graphSchemas = {
  input_schema: optional(JsonObject()),
  output_schema: optional(JsonObject()),
  state_schema: optional(JsonObject()),
  config_schema: optional(JsonObject()),
  context_schema: optional(JsonObject()),
};

export const getAssistantSchemas = defineAgentOperation({
  operationId: 'getAssistantSchemas',
  method: 'GET',
  path: '/assistants/:assistant_id/schemas',
  tag: 'assistants',
  summary: 'JSON schemas of what the graph of an assistant takes, keeps and answers',
  description:
    'As the graph knows them at run time (zod), else as they were read from its TypeScript types, in the background after the start, ' +
    `with the compiler of its project; while that is going on, the request waits for at most ${schemasWaitMs / 1_000} s. ` +
    'Null if neither knows them, or not yet.',
  access: reads,
  errors: graphErrors,
  schema: {
    params: AssistantParams,
    response: { 200: Type.Object({ graph_id: Type.String(), ...graphSchemas }) },
  },
  handler: async ({ params, services: { agents } }) => {
    const assistant = await resolveAssistant(agents.database, agents.deploymentId, params.assistant_id);
    const { graph_id: graphId, config } = assistant;
    return new Answer({ body: await describeGraph(agents, graphId, config, schemasWaitMs) });
  },
});
