import { type Static, Type } from 'typebox';
import { Check } from 'typebox/value';
import { dropNullish } from '../../infra/collections/drop-nullish.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { CheckpointReference } from '../../pipelines/agents/runs/run.ts';
import { readThreadHistory, readThreadState } from '../../pipelines/agents/threads/thread-state.ts';
import { updateThreadState as update } from '../../pipelines/agents/threads/update-thread-state.ts';
import { JsonObject, nullable, optional, Timestamp } from '../server/formats.ts';
import { createThreadRule } from './access/rules.ts';
import { defineAgentOperation, graphErrors, readAccess, runAccess } from './agent-operation.ts';
import {
  buildJsonResponse,
  Checkpoint,
  ClosedObject,
  JsonValue,
  Limit,
  ThreadParams,
  toCheckpointReference,
} from './agent-schema.ts';

const ThreadState = Type.Object({
  values: JsonValue(),
  next: Type.Array(Type.String({ description: 'Next nodes.' })),
  tasks: Type.Array(JsonObject()),
  checkpoint: nullable(JsonObject()),
  parent_checkpoint: nullable(JsonObject()),
  metadata: JsonObject(),
  created_at: nullable(Timestamp()),
  interrupts: Type.Array(JsonObject()),
});
/** A state in a response. If the request has `select`, the state has only the selected fields. */
const SelectedThreadState = Type.Partial(ThreadState);

const stateFields = Object.keys(ThreadState.properties);
/** Fields of a state that the response contains. Source: the Python `langgraph-sdk` 0.4.14, ThreadStateSelectField. */
const StateSelect = Type.Array(Type.String({ pattern: `^(?:${stateFields.join('|')}|values\\..{1,1000})$` }), {
  description: `Fields of the response: ${stateFields.join(', ')}, or \`values.\` and one of its keys.`,
  maxItems: 1_000,
});

const stateReadOperation = { access: readAccess, rule: createThreadRule('threads:read') } as const;
const stateErrors = ['THREAD_NOT_FOUND', ...graphErrors] as const;
const stateQuery = Type.Object({
  subgraphs: Type.Boolean({ default: false, description: 'Include the states of interrupted subgraphs.' }),
  select: Type.Optional(StateSelect),
});

const getThreadState = defineAgentOperation({
  ...stateReadOperation,
  operationId: 'getThreadState',
  method: 'GET',
  path: '/threads/:thread_id/state',
  summary: 'Get the state of a thread',
  errors: stateErrors,
  schema: { params: ThreadParams, query: stateQuery, response: { 200: SelectedThreadState } },
  handler: async ({ params: { thread_id: id }, query, services: { agents } }) =>
    buildJsonResponse(await readThreadState(agents, id, query)),
});

const getThreadStateAt = defineAgentOperation({
  ...stateReadOperation,
  operationId: 'getThreadStateAt',
  method: 'GET',
  path: '/threads/:thread_id/state/:checkpoint_id',
  summary: 'Get the state of a thread at a checkpoint',
  errors: ['CHECKPOINT_NOT_FOUND', ...stateErrors],
  schema: {
    params: Type.Object({ ...ThreadParams.properties, checkpoint_id: Type.String({ maxLength: 1_000 }) }),
    query: stateQuery,
    response: { 200: SelectedThreadState },
  },
  handler: async ({ params: { thread_id: id, checkpoint_id }, query, services: { agents } }) =>
    buildJsonResponse(await readThreadState(agents, id, { ...query, checkpoint: { checkpoint_id } })),
});

const getThreadStateOf = defineAgentOperation({
  ...stateReadOperation,
  operationId: 'getThreadStateOf',
  method: 'POST',
  path: '/threads/:thread_id/state/checkpoint',
  summary: 'Get the state of a thread or of a subgraph at a checkpoint',
  errors: ['CHECKPOINT_NOT_FOUND', ...stateErrors],
  schema: {
    params: ThreadParams,
    query: stateQuery,
    body: ClosedObject({ checkpoint: Checkpoint, subgraphs: optional(Type.Boolean()), select: optional(StateSelect) }),
    response: { 200: SelectedThreadState },
  },
  handler: async ({ params, query, body: { checkpoint, ...asked }, services: { agents } }) => {
    const historyQuery = { ...query, ...dropNullish(asked), checkpoint: toCheckpointReference(checkpoint) };
    return buildJsonResponse(await readThreadState(agents, params.thread_id, historyQuery));
  },
});

const updateThreadState = defineAgentOperation({
  operationId: 'updateThreadState',
  method: 'POST',
  path: '/threads/:thread_id/state',
  summary: 'Write to the state of a thread, as if a node had returned the values',
  access: runAccess,
  rule: createThreadRule('threads:update'),
  errors: [
    'THREAD_NOT_FOUND',
    'THREAD_WITHOUT_GRAPH',
    'THREAD_BUSY',
    'CHECKPOINT_NOT_FOUND',
    'STATE_UPDATE_INVALID',
    'CLOCK_BEHIND',
    'GRAPH_NODE_UNKNOWN',
    ...graphErrors,
  ],
  schema: {
    params: ThreadParams,
    body: ClosedObject({
      values: Type.Optional(JsonValue({ description: 'Values that the node returns. Null: none.' })),
      as_node: optional(Type.String({ description: 'Default: the node that ran last.' })),
      checkpoint: optional(Checkpoint, { description: 'Checkpoint to continue from. Default: the latest.' }),
      checkpoint_id: optional(Type.String({ maxLength: 1_000 })),
    }),
    response: { 200: Type.Object({ checkpoint: JsonObject({ description: 'Checkpoint of the new state.' }) }) },
  },
  handler: async ({ params, body, services: { agents }, request }) => {
    const { values, as_node, checkpoint, checkpoint_id } = body;
    const from = { ...dropNullish({ checkpoint_id }), ...(checkpoint && toCheckpointReference(checkpoint)) };
    const checkpointIds = await update({ ...agents, logger: request.log }, params.thread_id, {
      updates: [[{ values: values ?? null, ...dropNullish({ as_node }) }]],
      ...(Object.keys(from).length > 0 && { checkpoint: from }),
    });
    return { checkpoint: { ...checkpointIds } };
  },
});

const historyReadOperation = {
  ...stateReadOperation,
  path: '/threads/:thread_id/history',
  errors: ['THREAD_NOT_FOUND', 'ANSWER_TOO_LARGE', ...graphErrors],
} as const;

/**
 * Start of a page. Depending on their version, clients send an id, a checkpoint, or a configuration that contains a
 * checkpoint.
 */
const Before = Type.Union([
  Type.String({ maxLength: 1_000 }),
  Type.Object({ configurable: Checkpoint }, { description: 'A configuration.' }),
  Type.Object({ ...Checkpoint.properties, configurable: Type.Optional(Type.Never()) }),
]);

const getThreadHistory = defineAgentOperation({
  ...historyReadOperation,
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
    response: { 200: Type.Array(SelectedThreadState) },
  },
  handler: async ({ params, query: { limit, before: text, select }, services: { agents } }) => {
    const before = text === undefined ? undefined : toCheckpointChoice(text.startsWith('{') ? parseBefore(text) : text);
    return buildJsonResponse(
      await readThreadHistory(agents, params.thread_id, { limit, ...dropNullish({ before, select }) }),
    );
  },
});

const searchThreadHistory = defineAgentOperation({
  ...historyReadOperation,
  operationId: 'searchThreadHistory',
  method: 'POST',
  summary: 'List the states of a thread or of a subgraph, newest first',
  schema: {
    params: ThreadParams,
    body: ClosedObject({
      limit: Limit(),
      before: optional(Before),
      checkpoint: optional(Checkpoint, { description: 'Its `checkpoint_ns` selects the subgraph.' }),
      metadata: optional(JsonObject({ description: 'Only states whose metadata contains it.' })),
      select: optional(StateSelect),
    }),
    response: { 200: Type.Array(SelectedThreadState) },
  },
  handler: async ({ params, body: { limit, before, checkpoint, metadata, select }, services: { agents } }) =>
    buildJsonResponse(
      await readThreadHistory(agents, params.thread_id, {
        limit: limit ?? 10,
        ...dropNullish({ before: before ? toCheckpointChoice(before) : null, metadata, select }),
        ...(checkpoint && { checkpoint: toCheckpointReference(checkpoint) }),
      }),
    ),
});

function toCheckpointChoice(before: Static<typeof Before>): CheckpointReference {
  if (typeof before === 'string') return { checkpoint_id: before };
  return toCheckpointReference('configurable' in before ? (before.configurable as Static<typeof Checkpoint>) : before);
}

function parseBefore(text: string): Static<typeof Before> {
  try {
    const value: unknown = JSON.parse(text);
    if (Check(Before, value)) return value;
  } catch {
    // Invalid JSON has the same error as JSON that is not a checkpoint.
  }
  const field = { loc: ['query', 'before'], msg: 'must be the id of a checkpoint, or JSON of one', type: 'json' };
  throw runlakeError('INVALID_REQUEST', {}, { fields: [field] });
}

export const threadStateOperations = [
  getThreadState,
  getThreadStateAt,
  getThreadStateOf,
  updateThreadState,
  getThreadHistory,
  searchThreadHistory,
];
