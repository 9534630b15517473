import { Type } from 'typebox';
import { fault } from '../../../infra/errors/runlake-error.ts';
import { createThreadWithState } from '../../../pipelines/agents/threads/create-thread-with-state.ts';
import { JsonObject, optional, Uuid } from '../../server/formats.ts';
import { defineAgentOperation, runs } from '../agent-operation.ts';
import { Closed, given, JsonValue, words } from '../agent-schema.ts';
import { graphErrors } from '../graph-errors.ts';
import { RunBody } from '../runs/run-body.ts';
import { showThread, Thread, Ttl, ttlOf } from './thread-schema.ts';

const Update = Closed({
  values: Type.Optional(JsonValue()),
  command: RunBody.properties.command,
  as_node: optional(Type.String()),
});

export const createThread = defineAgentOperation({
  operationId: 'createThread',
  method: 'POST',
  path: '/threads',
  tag: 'threads',
  summary: 'Make a thread, on request with a state',
  access: runs,
  errors: [
    'THREAD_EXISTS',
    'THREAD_WITHOUT_GRAPH',
    'THREAD_BUSY',
    'THREAD_NOT_FOUND',
    'STATE_UPDATE_INVALID',
    'GRAPH_NODE_UNKNOWN',
    ...graphErrors,
  ],
  schema: {
    body: Closed({
      thread_id: optional(Uuid()),
      metadata: optional(JsonObject({ description: '`graph_id` says whose state `supersteps` make.' })),
      if_exists: optional(words(['raise', 'do_nothing'])),
      ttl: Ttl,
      supersteps: optional(Type.Array(Closed({ updates: Type.Array(Update) }), { maxItems: 1_000 }), {
        description: 'Updates to its state, step by step, as if nodes had answered them. Only where the thread is new.',
      }),
    }),
    response: { 200: Thread },
  },
  handler: async ({ body, services: { agents } }) => {
    const thread = {
      metadata: body.metadata ?? {},
      ifExists: body.if_exists ?? 'raise',
      ...given({ threadId: body.thread_id, ttl: ttlOf(body.ttl) }),
    };
    const supersteps = (body.supersteps ?? []).map(({ updates }, step) =>
      updates.map(({ as_node, ...update }, place) => {
        if (update.command && hasFields(update.values)) throw valuesBesideCommand(step, place);
        return { ...update, ...given({ as_node }) };
      }),
    );
    return showThread(await createThreadWithState(agents, thread, supersteps));
  },
});

function hasFields(values: unknown): boolean {
  return values !== undefined && values !== null && Object.keys(values).length > 0;
}

function valuesBesideCommand(step: number, place: number): Error {
  const loc = ['body', 'supersteps', step, 'updates', place, 'values'];
  const msg = 'have no effect beside a command: its update says what is written';
  return fault('INVALID_REQUEST', {}, { fields: [{ loc, msg, type: 'values_beside_command' }] });
}
