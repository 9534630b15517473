import { Type } from 'typebox';
import { updateAssistant as update } from '../../../pipelines/agents/assistants/write-assistants.ts';
import { optional } from '../../server/formats.ts';
import { defineAgentOperation, runs } from '../agent-operation.ts';
import { AssistantParams, Closed, given } from '../agent-schema.ts';
import { Assistant, changeable, requireGraph } from './assistant-schema.ts';

export const updateAssistant = defineAgentOperation({
  operationId: 'updateAssistant',
  method: 'PATCH',
  path: '/assistants/:assistant_id',
  tag: 'assistants',
  summary: 'Update an assistant, which creates and activates a new version',
  description: 'Metadata is merged; other fields are replaced.',
  access: runs,
  errors: ['ASSISTANT_NOT_FOUND', 'GRAPH_NOT_FOUND'],
  schema: {
    params: AssistantParams,
    body: Closed({ graph_id: optional(Type.String({ minLength: 1 })), ...changeable }),
    response: { 200: Assistant },
  },
  handler: async ({ params, body, services: { agents } }) => {
    const { graph_id: graphId, config, context, metadata, name, description } = body;
    if (graphId) requireGraph(agents, graphId);
    return update(agents.database, agents.deploymentId, params.assistant_id, {
      ...given({ graphId, config, metadata, name }),
      ...(description === undefined ? {} : { description }),
      ...(context === undefined ? {} : { context }),
    });
  },
});
