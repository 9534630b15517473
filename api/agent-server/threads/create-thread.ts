import { Type } from 'typebox';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { createThreadWithState } from '../../../pipelines/agents/threads/create-thread-with-state.ts';
import { JsonObject, optional, Uuid } from '../../server/formats.ts';
import { defineAgentOperation, runs } from '../agent-operation.ts';
import { Closed, given, JsonValue, words } from '../agent-schema.ts';
import { graphErrors } from '../graph-errors.ts';
import { RunBody } from '../runs/run-body.ts';
import { normaliseTtl, showThread, Thread, Ttl } from './thread-schema.ts';

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
  summary: 'Create a thread, optionally with state',
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
      metadata: optional(JsonObject({ description: '`graph_id` is the graph whose state `supersteps` write.' })),
      if_exists: optional(words(['raise', 'do_nothing'])),
      ttl: Ttl,
      supersteps: optional(Type.Array(Closed({ updates: Type.Array(Update) }), { maxItems: 1_000 }), {
        description: 'Updates of the state, step by step, as if nodes had returned them. Ignored if the thread exists.',
      }),
    }),
    response: { 200: Thread },
  },
  handler: async ({ body, services: { agents } }) => {
    const thread = {
      metadata: body.metadata ?? {},
      ifExists: body.if_exists ?? 'raise',
      ...given({ threadId: body.thread_id, ttl: normaliseTtl(body.ttl) }),
    };
    const supersteps = (body.supersteps ?? []).map(({ updates }, step) =>
      updates.map(({ as_node, ...update }, index) => {
        if (update.command && hasFields(update.values)) throw valuesBesideCommand(step, index);
        return { ...update, ...given({ as_node }) };
      }),
    );
    return showThread(await createThreadWithState(agents, thread, supersteps));
  },
});

function hasFields(values: unknown): boolean {
  return values !== undefined && values !== null && Object.keys(values).length > 0;
}

function valuesBesideCommand(step: number, index: number): Error {
  const loc = ['body', 'supersteps', step, 'updates', index, 'values'];
  const msg = 'have no effect with a command, whose update is written';
  return runlakeError('INVALID_REQUEST', {}, { fields: [{ loc, msg, type: 'values_beside_command' }] });
}
