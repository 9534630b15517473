import { Type } from 'typebox';
import { updateThread as update } from '../../../pipelines/agents/threads/update-thread.ts';
import { JsonObject, optional } from '../../server/formats.ts';
import { Answer } from '../../server/operation.ts';
import { defineAgentOperation, runs } from '../agent-operation.ts';
import { Closed, given } from '../agent-schema.ts';
import { showThread, Thread, ThreadParams, Ttl, ttlOf } from './thread-schema.ts';

export const updateThread = defineAgentOperation({
  operationId: 'updateThread',
  method: 'PATCH',
  path: '/threads/:thread_id',
  tag: 'threads',
  summary: 'Change the metadata of a thread, or how long it is kept',
  description: 'Metadata is merged with what there is. With `Prefer: return=minimal` the answer is 204 and empty.',
  access: runs,
  errors: ['THREAD_NOT_FOUND'],
  schema: {
    params: ThreadParams,
    body: Closed({ metadata: optional(JsonObject()), ttl: Ttl }),
    response: { 200: Thread, 204: Type.Null() },
  },
  handler: async ({ params, body, services: { agents }, request }) => {
    const change = {
      ...given({ metadata: body.metadata, ttl: ttlOf(body.ttl) }),
      ...(body.ttl === null && { ttl: null }),
    };
    const thread = await update(agents.database, agents.deploymentId, params.thread_id, change);
    const minimal = /(?:^|,)\s*return=minimal\s*(?:[,;]|$)/i.test(String(request.headers.prefer ?? ''));
    return minimal ? new Answer({ status: 204 }) : showThread(thread);
  },
});
