import { Type } from 'typebox';
import { deleteThread as remove } from '../../../pipelines/agents/threads/delete-thread.ts';
import { Answer } from '../../server/operation.ts';
import { defineAgentOperation, runs } from '../agent-operation.ts';
import { ThreadParams } from './thread-schema.ts';

export const deleteThread = defineAgentOperation({
  operationId: 'deleteThread',
  method: 'DELETE',
  path: '/threads/:thread_id',
  tag: 'threads',
  summary: 'Delete a thread with its state and its runs',
  access: runs,
  errors: ['THREAD_NOT_FOUND'],
  schema: { params: ThreadParams, response: { 204: Type.Null() } },
  handler: async ({ params, services: { agents } }) => {
    await remove(agents.database, agents.deploymentId, params.thread_id);
    return new Answer({ status: 204 });
  },
});
