import { Type } from 'typebox';
import { Answer } from '../../server/operation.ts';
import { defineAgentOperation, runs } from '../agent-operation.ts';
import { JsonValue } from '../agent-schema.ts';
import { ThreadParams } from '../runs/run-paths.ts';
import { answerCommand, readCommand } from './answer-command.ts';

const Success = Type.Object({
  type: Type.Literal('success'),
  id: Type.Integer(),
  result: JsonValue(),
  meta: Type.Object({ thread_id: Type.String(), applied_through_seq: Type.Integer() }),
});
const Failure = Type.Object({
  type: Type.Literal('error'),
  id: Type.Union([Type.Integer(), Type.Null()]),
  error: Type.String(),
  message: Type.String(),
});

export const postThreadCommand = defineAgentOperation({
  operationId: 'postThreadCommand',
  method: 'POST',
  path: '/threads/:thread_id/commands',
  tag: 'event protocol',
  summary: 'Send a command of the event-stream protocol',
  description:
    'run.start {assistant_id, input, config, metadata, multitaskStrategy}, which creates the thread if it does not exist; input.respond {interrupt_id, response} or {responses}, with update and goto; state.get {namespace, keys}; state.listCheckpoints {namespace, limit, before}; state.fork {checkpoint_id, input, config}, which runs from there; agent.getTree. A failed command results in 200 with an `error`, an invalid command in 400.',
  access: runs,
  errors: ['THREAD_NOT_FOUND'],
  schema: {
    params: ThreadParams,
    body: JsonValue({ description: '{id, method, params}.' }),
    response: { 200: Type.Union([Success, Failure]), 400: Failure },
  },
  handler: async ({ params, body, caller, services: { agents }, request }) => {
    const read = readCommand(body);
    if ('refusal' in read) return new Answer({ status: 400, body: read.refusal });
    const threadId = params.thread_id.toLowerCase();
    return new Answer({ body: await answerCommand({ agents, caller, request, threadId }, read.command) });
  },
});
