import { Type } from 'typebox';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { resolveAssistant } from '../../../pipelines/agents/assistants/assistant.ts';
import { JsonObject } from '../../server/formats.ts';
import { defineAgentOperation, reads } from '../agent-operation.ts';
import { AssistantParams, jsonText } from '../agent-schema.ts';
import { graphErrors } from '../graph-errors.ts';

export const getAssistantGraph = defineAgentOperation({
  operationId: 'getAssistantGraph',
  method: 'GET',
  path: '/assistants/:assistant_id/graph',
  tag: 'assistants',
  summary: 'Get the nodes and edges of the graph of an assistant',
  access: reads,
  errors: graphErrors,
  schema: {
    params: AssistantParams,
    query: Type.Object({
      xray: Type.String({ default: 'false', description: 'Expand subgraphs: a boolean, or the number of levels.' }),
    }),
    response: { 200: Type.Object({ nodes: Type.Array(JsonObject()), edges: Type.Array(JsonObject()) }) },
  },
  handler: async ({ params, query, services: { agents } }) => {
    const xray = parseDepth(query.xray);
    const assistant = await resolveAssistant(agents.database, agents.deploymentId, params.assistant_id);
    const { graph_id: graphId, config } = assistant;
    return jsonText(await agents.pool.ask({ kind: 'drawing', graphId, config, xray }));
  },
});

function parseDepth(text: string): boolean | number {
  if (/^(?:true|yes|on)$/i.test(text)) return true;
  if (/^(?:false|no|off|0)$/i.test(text)) return false;
  if (/^\d{1,4}$/.test(text)) return Number(text);
  const field = { loc: ['query', 'xray'], msg: 'must be a boolean or a number of levels', type: 'boolean_type' };
  throw runlakeError('INVALID_REQUEST', {}, { fields: [field] });
}
