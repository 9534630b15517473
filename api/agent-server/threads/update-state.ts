import { Type } from 'typebox';
import { updateThreadState as update } from '../../../pipelines/agents/threads/update-thread-state.ts';
import { JsonObject, optional } from '../../server/formats.ts';
import { defineAgentOperation, runs } from '../agent-operation.ts';
import { Checkpoint, Closed, given, JsonValue, withoutNullFields } from '../agent-schema.ts';
import { graphErrors } from '../graph-errors.ts';
import { ThreadParams } from './thread-schema.ts';

export const updateThreadState = defineAgentOperation({
  operationId: 'updateThreadState',
  method: 'POST',
  path: '/threads/:thread_id/state',
  tag: 'threads',
  summary: 'Write to the state of a thread, as if a node had returned the values',
  access: runs,
  errors: [
    'THREAD_NOT_FOUND',
    'THREAD_WITHOUT_GRAPH',
    'THREAD_BUSY',
    'CHECKPOINT_NOT_FOUND',
    'STATE_UPDATE_INVALID',
    'GRAPH_NODE_UNKNOWN',
    ...graphErrors,
  ],
  schema: {
    params: ThreadParams,
    body: Closed({
      values: Type.Optional(JsonValue({ description: 'Values that the node returns. Null: none.' })),
      as_node: optional(Type.String({ description: 'Default: the node that ran last.' })),
      checkpoint: optional(Checkpoint, { description: 'Checkpoint to continue from. Default: the latest.' }),
      checkpoint_id: optional(Type.String({ maxLength: 1_000 })),
    }),
    response: { 200: Type.Object({ checkpoint: JsonObject({ description: 'Checkpoint of the new state.' }) }) },
  },
  handler: async ({ params, body, services: { agents } }) => {
    const { values, as_node, checkpoint, checkpoint_id } = body;
    const from = { ...given({ checkpoint_id }), ...(checkpoint && withoutNullFields(checkpoint)) };
    const checkpointIds = await update(agents, params.thread_id, {
      updates: [[{ values: values ?? null, ...given({ as_node }) }]],
      ...(Object.keys(from).length > 0 && { checkpoint: from }),
    });
    return { checkpoint: { ...checkpointIds } };
  },
});
