import { Type } from 'typebox';
import { updateThread } from '../../../pipelines/agents/threads/update-thread.ts';
import { JsonObject } from '../../server/formats.ts';
import { Answer } from '../../server/operation.ts';
import { defineAgentOperation, runs } from '../agent-operation.ts';
import { Closed } from '../agent-schema.ts';
import { ThreadParams } from './thread-schema.ts';

export const patchThreadState = defineAgentOperation({
  operationId: 'patchThreadState',
  method: 'PATCH',
  path: '/threads/:thread_id/state',
  tag: 'threads',
  summary: 'Merge metadata into the metadata of a thread',
  description: 'Deprecated form of updating the thread.',
  access: runs,
  errors: ['THREAD_NOT_FOUND'],
  schema: { params: ThreadParams, body: Closed({ metadata: JsonObject() }), response: { 204: Type.Null() } },
  handler: async ({ params, body: { metadata }, services: { agents } }) => {
    await updateThread(agents.database, agents.deploymentId, params.thread_id, { metadata });
    return new Answer({ status: 204 });
  },
});
