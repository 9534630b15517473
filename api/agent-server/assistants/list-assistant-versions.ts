import { Type } from 'typebox';
import { resolveAssistant } from '../../../pipelines/agents/assistants/assistant.ts';
import { listAssistantVersions as list } from '../../../pipelines/agents/assistants/read-assistants.ts';
import { JsonObject, optional } from '../../server/formats.ts';
import { defineAgentOperation, reads } from '../agent-operation.ts';
import { AssistantParams, Closed, given, Limit, Offset } from '../agent-schema.ts';
import { AssistantVersion } from './assistant-schema.ts';

export const listAssistantVersions = defineAgentOperation({
  operationId: 'listAssistantVersions',
  method: 'POST',
  path: '/assistants/:assistant_id/versions',
  tag: 'assistants',
  summary: 'List the versions of an assistant, newest first',
  access: reads,
  errors: ['ASSISTANT_NOT_FOUND', 'ANSWER_TOO_LARGE'],
  schema: {
    params: AssistantParams,
    body: Closed({ metadata: optional(JsonObject()), limit: Limit(), offset: Offset() }),
    response: { 200: Type.Array(AssistantVersion) },
  },
  handler: async ({ params, body, services: { agents } }) => {
    const { database, deploymentId, config } = agents;
    const { assistant_id: id } = await resolveAssistant(database, deploymentId, params.assistant_id);
    const { metadata, limit, offset } = body;
    const page = { limit: limit ?? 10, offset: offset ?? 0, limitBytes: config.maxPageBytes };
    return list(database, deploymentId, id, { ...given({ metadata }), ...page });
  },
});
