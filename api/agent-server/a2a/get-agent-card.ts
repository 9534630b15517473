import { resolveAssistant } from '../../../pipelines/agents/assistants/assistant.ts';
import { describeGraph } from '../../../pipelines/agents/schemas/describe-graph.ts';
import { JsonObject } from '../../server/formats.ts';
import { Answer } from '../../server/operation.ts';
import { requestOrigin } from '../../server/public-base.ts';
import '../access/agent-access.ts';
import { defineAgentOperation, reads } from '../agent-operation.ts';
import { AssistantParams } from '../agent-schema.ts';
import { graphErrors } from '../graph-errors.ts';
import { requireProtocol } from '../require-protocol.ts';

const withKey = {
  securitySchemes: { apiKey: { type: 'apiKey', in: 'header', name: 'x-api-key' } },
  security: [{ apiKey: [] }],
};
const modes = ['application/json', 'text/plain'];

export const getAgentCard = defineAgentOperation({
  operationId: 'getAgentCard',
  method: 'GET',
  path: '/.well-known/agent-card.json',
  tag: 'a2a',
  summary: 'Get the agent card of an assistant (Agent2Agent protocol 0.3)',
  access: reads,
  errors: ['ROUTE_NOT_FOUND', ...graphErrors],
  schema: { query: AssistantParams, response: { 200: JsonObject() } },
  handler: async ({ query, request, services: { agents } }) => {
    requireProtocol(agents, 'a2a', request);
    const assistant = await resolveAssistant(agents.database, agents.deploymentId, query.assistant_id);
    const { assistant_id: id, graph_id: graphId, name, config, version } = assistant;
    const { input_schema } = await describeGraph(agents, graphId, config);
    const description = assistant.description ?? `The assistant ${name}`;
    const card = {
      protocolVersion: '0.3.0',
      name,
      description,
      url: `${agents.config.agentsPublicUrl?.replace(/\/+$/, '') ?? requestOrigin(request)}/a2a/${id}`,
      preferredTransport: 'JSONRPC',
      capabilities: { streaming: true, pushNotifications: false, stateTransitionHistory: false },
      defaultInputModes: modes,
      defaultOutputModes: modes,
      // The requirements of custom authentication are defined by project code and unknown here.
      ...(request.agentAccess === undefined && withKey),
      skills: [
        {
          id: `${id}-main`,
          name,
          description,
          tags: ['assistant', graphId],
          examples: [],
          inputModes: modes,
          outputModes: modes,
          metadata: { inputSchema: input_schema },
        },
      ],
      version: String(version),
    };
    return new Answer({ body: card });
  },
});
