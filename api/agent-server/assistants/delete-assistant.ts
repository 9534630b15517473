import { Type } from 'typebox';
import { resolveAssistant } from '../../../pipelines/agents/assistants/assistant.ts';
import { deleteAssistant as remove } from '../../../pipelines/agents/assistants/write-assistants.ts';
import { defineAgentOperation, runs } from '../agent-operation.ts';
import { AssistantParams } from '../agent-schema.ts';

export const deleteAssistant = defineAgentOperation({
  operationId: 'deleteAssistant',
  method: 'DELETE',
  path: '/assistants/:assistant_id',
  tag: 'assistants',
  summary: 'Delete an assistant with its versions and runs',
  description: 'The assistant of a graph is created again when the server starts.',
  access: runs,
  errors: ['ASSISTANT_NOT_FOUND'],
  schema: {
    params: AssistantParams,
    query: Type.Object({
      delete_threads: Type.Boolean({
        default: false,
        description: 'Also delete the threads whose first run was of this assistant.',
      }),
    }),
    // The JavaScript client expects JSON if the status is 200.
    response: { 200: Type.Array(Type.String(), { description: 'Id of the deleted assistant.' }) },
  },
  handler: async ({ params, query, services: { agents } }) => {
    const { database, deploymentId } = agents;
    const { assistant_id: id } = await resolveAssistant(database, deploymentId, params.assistant_id);
    await remove(database, deploymentId, id, { deleteThreads: query.delete_threads });
    return [id];
  },
});
