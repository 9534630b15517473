import { Type } from 'typebox';
import { readThread } from '../../../pipelines/agents/threads/thread.ts';
import { defineAgentOperation, reads } from '../agent-operation.ts';
import { words } from '../agent-schema.ts';
import { showThread, Thread, ThreadParams } from './thread-schema.ts';

export const getThread = defineAgentOperation({
  operationId: 'getThread',
  method: 'GET',
  path: '/threads/:thread_id',
  tag: 'threads',
  summary: 'Get a thread',
  access: reads,
  errors: ['THREAD_NOT_FOUND'],
  schema: {
    params: ThreadParams,
    query: Type.Object({
      include: Type.Optional(Type.Array(words(['ttl']), { description: '`ttl`: the TTL of the thread.' })),
    }),
    response: { 200: Thread },
  },
  handler: async ({ params, query, services: { agents } }) => {
    const thread = await readThread(agents.database, agents.deploymentId, params.thread_id);
    return query.include?.includes('ttl') ? thread : showThread(thread);
  },
});
