import { Type } from 'typebox';
import { replayPosition } from '../../../pipelines/agents/protocol/replay-position.ts';
import { requirePermission } from '../../../pipelines/tenants/caller.ts';
import { Answer } from '../../server/operation.ts';
import { compileCheck } from '../../server/schema-check.ts';
import { defineAgentOperation, runs } from '../agent-operation.ts';
import { JsonValue } from '../agent-schema.ts';
import { ThreadParams } from '../runs/run-paths.ts';
import { buildRefusal, Command, type CommandError, CommandRefused, type CommandSuccess } from './command.ts';
import { getState, getTree, listCheckpoints } from './read-commands.ts';
import { type CommandScene, forkState, respondToInput, startRun } from './run-commands.ts';

type CommandHandler = (scene: CommandScene, params: unknown) => Promise<object>;

const withRunPermission =
  (answer: CommandHandler): CommandHandler =>
  (scene, params) => {
    requirePermission(scene.caller, 'agents:run');
    return answer(scene, params);
  };
const withReadPermission =
  (answer: CommandHandler): CommandHandler =>
  (scene, params) => {
    requirePermission(scene.caller, 'agents:read');
    return answer(scene, params);
  };

const commands: Readonly<Record<string, CommandHandler>> = {
  'run.start': withRunPermission(startRun),
  'input.respond': withRunPermission(respondToInput),
  'state.fork': withRunPermission(forkState),
  'state.get': withReadPermission(getState),
  'state.listCheckpoints': withReadPermission(listCheckpoints),
  'agent.getTree': withReadPermission(getTree),
};

/**
 * Commands of the protocol that are not implemented here (decision 0057); those about subscriptions exist only on a
 * WebSocket.
 */
const notBuilt = new Set([
  'input.inject',
  'subscription.subscribe',
  'subscription.unsubscribe',
  'subscription.reconnect',
]);

const check = compileCheck({ schema: Command, httpPart: 'body', method: '', url: '' });

/** Validates a message. Returns the command, or the error response if it is not one. */
export function readCommand(message: unknown): { readonly command: Command } | { readonly refusal: CommandError } {
  const { error } = check(message) as { readonly error?: Error };
  if (error === undefined) return { command: message as Command };
  const id = (message as { readonly id?: unknown } | null | undefined)?.id;
  const known = Number.isSafeInteger(id) && Number(id) >= 0 ? Number(id) : null;
  return { refusal: buildRefusal(known, error) as CommandError };
}

/** Executes a command. Errors that the caller caused become an error response. @throws all other errors. */
export async function answerCommand(
  scene: CommandScene,
  { id, method, params }: Command,
  also: Readonly<Record<string, CommandHandler>> = {},
): Promise<CommandSuccess | CommandError> {
  try {
    const handler = Object.hasOwn(also, method)
      ? also[method]
      : Object.hasOwn(commands, method)
        ? commands[method]
        : undefined;
    if (handler === undefined) throw refused(method);
    const result = await handler(scene, params);
    return succeeded(scene, id, result);
  } catch (error) {
    const refusal = buildRefusal(id, error);
    if (refusal === undefined) throw error;
    return refusal;
  }
}

async function succeeded({ agents, threadId }: CommandScene, id: number, result: object): Promise<CommandSuccess> {
  const { threadSeq } = await replayPosition(agents.database, agents.deploymentId, threadId);
  return { type: 'success', id, result, meta: { thread_id: threadId, applied_through_seq: threadSeq } };
}

function refused(method: string): CommandRefused {
  if (!notBuilt.has(method)) return new CommandRefused('unknown_command', `Unknown command '${method}'.`);
  const where = method.startsWith('subscription.') ? ' here: subscribe on a WebSocket, or open a stream of events' : '';
  return new CommandRefused('not_supported', `The command '${method}' is not supported${where}.`);
}

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
