import { Type } from 'typebox';
import { pruneThreads as prune } from '../../../pipelines/agents/threads/delete-thread.ts';
import { optional, Uuid } from '../../server/formats.ts';
import { defineAgentOperation, runs } from '../agent-operation.ts';
import { Closed, words } from '../agent-schema.ts';

export const pruneThreads = defineAgentOperation({
  operationId: 'pruneThreads',
  method: 'POST',
  path: '/threads/prune',
  tag: 'threads',
  summary: 'Delete threads, or all but their latest state',
  description: 'Unknown ids are ignored.',
  access: runs,
  schema: {
    body: Closed({
      thread_ids: Type.Array(Uuid(), { maxItems: 10_000 }),
      strategy: optional(words(['delete', 'keep_latest'])),
    }),
    response: { 200: Type.Object({ pruned_count: Type.Integer() }) },
  },
  handler: async ({ body, services: { agents } }) => ({
    pruned_count: await prune(agents.database, agents.deploymentId, {
      threadIds: body.thread_ids,
      strategy: body.strategy ?? 'delete',
    }),
  }),
});
