import { Type } from 'typebox';
import { countThreads as count } from '../../../pipelines/agents/threads/search-threads.ts';
import { defineAgentOperation, reads } from '../agent-operation.ts';
import { Closed, given } from '../agent-schema.ts';
import { threadFilter } from './search-threads.ts';

export const countThreads = defineAgentOperation({
  operationId: 'countThreads',
  method: 'POST',
  path: '/threads/count',
  tag: 'threads',
  summary: 'Count matching threads',
  access: reads,
  schema: { body: Closed(threadFilter), response: { 200: Type.Integer() } },
  handler: async ({ body: { metadata, values, status }, services: { agents } }) =>
    count(agents.database, agents.deploymentId, given({ metadata, values, status })),
});
