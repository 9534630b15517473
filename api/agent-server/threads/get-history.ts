import { Type } from 'typebox';
import { Check } from 'typebox/value';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { CheckpointChoice } from '../../../pipelines/agents/runs/run.ts';
import { readThreadHistory } from '../../../pipelines/agents/threads/thread-state.ts';
import { JsonObject, optional } from '../../server/formats.ts';
import { defineAgentOperation, reads } from '../agent-operation.ts';
import { Checkpoint, Closed, given, jsonText, Limit, withoutNullFields } from '../agent-schema.ts';
import { graphErrors } from '../graph-errors.ts';
import { StateSelect, ThreadHistory, ThreadParams } from './thread-schema.ts';

const described = {
  tag: 'threads',
  access: reads,
  path: '/threads/:thread_id/history',
  errors: ['THREAD_NOT_FOUND', 'ANSWER_TOO_LARGE', ...graphErrors],
} as const;
const response = { 200: ThreadHistory };

/** The forms that clients of different versions send: an id, a checkpoint, or a configuration that contains one. */
const Before = Type.Union([
  Type.String({ maxLength: 1_000 }),
  Type.Object({ configurable: Checkpoint }, { description: 'A configuration.' }),
  Type.Object({ ...Checkpoint.properties, configurable: Type.Optional(Type.Never()) }),
]);

export const getThreadHistory = defineAgentOperation({
  ...described,
  operationId: 'getThreadHistory',
  method: 'GET',
  summary: 'List the states of a thread, newest first',
  schema: {
    params: ThreadParams,
    query: Type.Object({
      limit: Type.Integer({ minimum: 1, maximum: 1_000, default: 10 }),
      before: Type.Optional(
        Type.String({ description: 'Only checkpoints before this one: its id, or the checkpoint as JSON.' }),
      ),
      select: Type.Optional(StateSelect),
    }),
    response,
  },
  handler: async ({ params, query: { limit, before: text, select }, services: { agents } }) => {
    const before = text === undefined ? undefined : toCheckpointChoice(text.startsWith('{') ? parse(text) : text);
    return jsonText(await readThreadHistory(agents, params.thread_id, { limit, ...given({ before, select }) }));
  },
});

export const searchThreadHistory = defineAgentOperation({
  ...described,
  operationId: 'searchThreadHistory',
  method: 'POST',
  summary: 'List the states of a thread or of a subgraph, newest first',
  schema: {
    params: ThreadParams,
    body: Closed({
      limit: Limit(),
      before: optional(Before),
      checkpoint: optional(Checkpoint, { description: 'Its `checkpoint_ns` selects the subgraph.' }),
      metadata: optional(JsonObject({ description: 'Only states whose metadata contains it.' })),
      select: optional(StateSelect),
    }),
    response,
  },
  handler: async ({ params, body: { limit, before, checkpoint, metadata, select }, services: { agents } }) =>
    jsonText(
      await readThreadHistory(agents, params.thread_id, {
        limit: limit ?? 10,
        ...given({ before: before ? toCheckpointChoice(before) : null, metadata, select }),
        ...(checkpoint && { checkpoint: withoutNullFields(checkpoint) }),
      }),
    ),
});

function toCheckpointChoice(before: Type.Static<typeof Before>): CheckpointChoice {
  if (typeof before === 'string') return { checkpoint_id: before };
  return withoutNullFields('configurable' in before ? (before.configurable as Type.Static<typeof Checkpoint>) : before);
}

function parse(text: string): Type.Static<typeof Before> {
  try {
    const value: unknown = JSON.parse(text);
    if (Check(Before, value)) return value;
  } catch {
    // Invalid JSON has the same error as JSON that is not a checkpoint.
  }
  const field = { loc: ['query', 'before'], msg: 'must be the id of a checkpoint, or JSON of one', type: 'json' };
  throw runlakeError('INVALID_REQUEST', {}, { fields: [field] });
}
