import { resolveAssistant } from '../../../pipelines/agents/assistants/assistant.ts';
import { defineAgentOperation, reads } from '../agent-operation.ts';
import { AssistantParams } from '../agent-schema.ts';
import { Assistant } from './assistant-schema.ts';

export const getAssistant = defineAgentOperation({
  operationId: 'getAssistant',
  method: 'GET',
  path: '/assistants/:assistant_id',
  tag: 'assistants',
  summary: 'Get an assistant in its active version',
  access: reads,
  errors: ['ASSISTANT_NOT_FOUND'],
  schema: { params: AssistantParams, response: { 200: Assistant } },
  handler: async ({ params, services: { agents } }) =>
    resolveAssistant(agents.database, agents.deploymentId, params.assistant_id),
});
