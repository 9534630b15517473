import { Type } from 'typebox';
import { resolveAssistant } from '../../../pipelines/agents/assistants/assistant.ts';
import { describeGraph } from '../../../pipelines/agents/schemas/describe-graph.ts';
import { JsonObject, optional } from '../../server/formats.ts';
import { Answer } from '../../server/operation.ts';
import { defineAgentOperation, reads } from '../agent-operation.ts';
import { AssistantParams } from '../agent-schema.ts';
import { graphErrors } from '../graph-errors.ts';

/** Maximum time that a request waits for the schemas of its graph. */
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
  summary: 'Get the JSON schemas of the input, state and output of an assistant',
  description:
    'From the run-time schemas of the graph (zod), otherwise from its TypeScript types. The server reads the types in the background ' +
    `after its start, with the compiler of the project; meanwhile the request waits for at most ${schemasWaitMs / 1_000} s. ` +
    'Null if there is no schema, or not yet.',
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
