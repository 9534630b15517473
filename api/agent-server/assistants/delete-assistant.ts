import { Type } from 'typebox';
import { deleteAssistant as remove } from '../../../pipelines/agents/assistants/delete-assistant.ts';
import { resolveAssistant } from '../../../pipelines/agents/assistants/resolve-assistant.ts';
import { defineAgentOperation, runs } from '../agent-operation.ts';
import { AssistantParams } from '../agent-schema.ts';

export const deleteAssistant = defineAgentOperation({
  operationId: 'deleteAssistant',
  method: 'DELETE',
  path: '/assistants/:assistant_id',
  tag: 'assistants',
  summary: 'Delete an assistant with its versions and runs',
  description: 'That of a graph is made again when the server starts.',
  access: runs,
  errors: ['ASSISTANT_NOT_FOUND'],
  schema: {
    params: AssistantParams,
    query: Type.Object({
      delete_threads: Type.Boolean({ default: false, description: 'Also the threads that it ran on first.' }),
    }),
    // The JavaScript client reads JSON wherever the status is 200.
    response: { 200: Type.Array(Type.String(), { description: 'The id of what was deleted.' }) },
  },
  handler: async ({ params, query, services: { agents } }) => {
    const { database, deploymentId } = agents;
    const { assistant_id: id } = await resolveAssistant(database, deploymentId, params.assistant_id);
    await remove(database, deploymentId, id, { deleteThreads: query.delete_threads });
    return [id];
  },
});
