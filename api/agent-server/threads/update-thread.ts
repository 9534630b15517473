import { Type } from 'typebox';
import { updateThread as update } from '../../../pipelines/agents/threads/update-thread.ts';
import { JsonObject, optional } from '../../server/formats.ts';
import { Answer } from '../../server/operation.ts';
import { defineAgentOperation, runs } from '../agent-operation.ts';
import { Closed, given } from '../agent-schema.ts';
import { normaliseTtl, showThread, Thread, ThreadParams, Ttl } from './thread-schema.ts';

export const updateThread = defineAgentOperation({
  operationId: 'updateThread',
  method: 'PATCH',
  path: '/threads/:thread_id',
  tag: 'threads',
  summary: 'Update the metadata or TTL of a thread',
  description: 'Metadata is merged. With `Prefer: return=minimal` the response is 204 without a body.',
  access: runs,
  errors: ['THREAD_NOT_FOUND'],
  schema: {
    params: ThreadParams,
    body: Closed({ metadata: optional(JsonObject()), ttl: Ttl }),
    response: { 200: Thread, 204: Type.Null() },
  },
  handler: async ({ params, body, services: { agents }, request }) => {
    const change = {
      ...given({ metadata: body.metadata, ttl: normaliseTtl(body.ttl) }),
      ...(body.ttl === null && { ttl: null }),
    };
    const thread = await update(agents.database, agents.deploymentId, params.thread_id, change);
    const minimal = /(?:^|,)\s*return=minimal\s*(?:[,;]|$)/i.test(String(request.headers.prefer ?? ''));
    return minimal ? new Answer({ status: 204 }) : showThread(thread);
  },
});
