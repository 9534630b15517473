import { Type } from 'typebox';
import { resolveAssistant } from '../../../pipelines/agents/assistants/assistant.ts';
import { setAssistantVersion as set } from '../../../pipelines/agents/assistants/write-assistants.ts';
import { defineAgentOperation, runs } from '../agent-operation.ts';
import { AssistantParams, Closed } from '../agent-schema.ts';
import { Assistant } from './assistant-schema.ts';

export const setAssistantVersion = defineAgentOperation({
  operationId: 'setAssistantVersion',
  method: 'POST',
  path: '/assistants/:assistant_id/latest',
  tag: 'assistants',
  summary: 'Activate a version of an assistant',
  access: runs,
  errors: ['ASSISTANT_NOT_FOUND'],
  schema: {
    params: AssistantParams,
    body: Closed({ version: Type.Integer({ minimum: 1, maximum: 2_147_483_647 }) }),
    response: { 200: Assistant },
  },
  handler: async ({ params, body, services: { agents } }) => {
    const { database, deploymentId } = agents;
    const { assistant_id: id } = await resolveAssistant(database, deploymentId, params.assistant_id);
    return set(database, deploymentId, id, body.version);
  },
});
