import { Type } from 'typebox';
import { readThreadState } from '../../../pipelines/agents/threads/thread-state.ts';
import { optional } from '../../server/formats.ts';
import { defineAgentOperation, reads } from '../agent-operation.ts';
import { Checkpoint, Closed, given, jsonText, withoutNullFields } from '../agent-schema.ts';
import { graphErrors } from '../graph-errors.ts';
import { SelectedThreadState, StateSelect, ThreadParams } from './thread-schema.ts';

const query = Type.Object({
  subgraphs: Type.Boolean({ default: false, description: 'Include the states of interrupted subgraphs.' }),
  select: Type.Optional(StateSelect),
});
const response = { 200: SelectedThreadState };
const described = { tag: 'threads', access: reads } as const;
const errors = ['THREAD_NOT_FOUND', ...graphErrors] as const;

export const getThreadState = defineAgentOperation({
  ...described,
  operationId: 'getThreadState',
  method: 'GET',
  path: '/threads/:thread_id/state',
  summary: 'Get the state of a thread',
  errors,
  schema: { params: ThreadParams, query, response },
  handler: async ({ params: { thread_id: id }, query, services: { agents } }) =>
    jsonText(await readThreadState(agents, id, query)),
});

export const getThreadStateAt = defineAgentOperation({
  ...described,
  operationId: 'getThreadStateAt',
  method: 'GET',
  path: '/threads/:thread_id/state/:checkpoint_id',
  summary: 'Get the state of a thread at a checkpoint',
  errors: ['CHECKPOINT_NOT_FOUND', ...errors],
  schema: {
    params: Type.Object({ ...ThreadParams.properties, checkpoint_id: Type.String({ maxLength: 1_000 }) }),
    query,
    response,
  },
  handler: async ({ params, query, services: { agents } }) => {
    const checkpoint = { checkpoint_id: params.checkpoint_id };
    return jsonText(await readThreadState(agents, params.thread_id, { ...query, checkpoint }));
  },
});

export const getThreadStateOf = defineAgentOperation({
  ...described,
  operationId: 'getThreadStateOf',
  method: 'POST',
  path: '/threads/:thread_id/state/checkpoint',
  summary: 'Get the state of a thread or of a subgraph at a checkpoint',
  errors: ['CHECKPOINT_NOT_FOUND', ...errors],
  schema: {
    params: ThreadParams,
    query,
    body: Closed({ checkpoint: Checkpoint, subgraphs: optional(Type.Boolean()), select: optional(StateSelect) }),
    response,
  },
  handler: async ({ params, query, body: { checkpoint, ...asked }, services: { agents } }) => {
    const question = { ...query, ...given(asked), checkpoint: withoutNullFields(checkpoint) };
    return jsonText(await readThreadState(agents, params.thread_id, question));
  },
});
