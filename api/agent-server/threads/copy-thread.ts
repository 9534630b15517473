import { copyThread as copy } from '../../../pipelines/agents/threads/create-thread.ts';
import { defineAgentOperation, runs } from '../agent-operation.ts';
import { showThread, Thread, ThreadParams } from './thread-schema.ts';

export const copyThread = defineAgentOperation({
  operationId: 'copyThread',
  method: 'POST',
  path: '/threads/:thread_id/copy',
  tag: 'threads',
  summary: 'Copy a thread with its state and history, without its runs',
  access: runs,
  errors: ['THREAD_TO_COPY_NOT_FOUND'],
  schema: { params: ThreadParams, response: { 200: Thread } },
  handler: async ({ params, services: { agents } }) =>
    showThread(await copy(agents.database, agents.deploymentId, params.thread_id)),
});
