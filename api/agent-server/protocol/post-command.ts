import { Type } from 'typebox';
import { toJsonObject } from '../../../infra/json/json-value.ts';
import { findReplayPosition } from '../../../pipelines/agents/protocol/protocol-event.ts';
import { requirePermission } from '../../../pipelines/tenants/caller.ts';
import { RawResponse } from '../../server/operation.ts';
import { compileValidator } from '../../server/schema-check.ts';
import { createThreadNotFoundError, createThreadRule, readThreadId } from '../access/rules.ts';
import { defineAgentOperation, runAccess } from '../agent-operation.ts';
import { JsonValue, ThreadParams } from '../agent-schema.ts';
import {
  buildErrorResponse,
  Command,
  type CommandContext,
  type CommandError,
  CommandRejectedError,
  type CommandSuccess,
} from './command.ts';
import { forkState, getState, getTree, listCheckpoints, respondToInput, startRun } from './run-commands.ts';

type CommandHandler = (context: CommandContext, params: unknown) => Promise<object>;

interface PermittedCommand {
  readonly permission: 'agents:run' | 'agents:read';
  readonly handle: CommandHandler;
}

const commands: ReadonlyMap<unknown, PermittedCommand> = new Map<string, PermittedCommand>([
  ['run.start', { permission: 'agents:run', handle: startRun }],
  ['input.respond', { permission: 'agents:run', handle: respondToInput }],
  ['state.fork', { permission: 'agents:run', handle: forkState }],
  ['state.get', { permission: 'agents:read', handle: getState }],
  ['state.listCheckpoints', { permission: 'agents:read', handle: listCheckpoints }],
  ['agent.getTree', { permission: 'agents:read', handle: getTree }],
]);

/**
 * Commands of the protocol that this endpoint refuses. `input.inject` is not implemented (decision 0057), and
 * subscription commands exist only on a WebSocket.
 */
const unsupportedCommands = new Set([
  'input.inject',
  'subscription.subscribe',
  'subscription.unsubscribe',
  'subscription.reconnect',
]);

const validateMessage = compileValidator({ schema: Command, httpPart: 'body', method: '', url: '' });

/** Validates a message. Returns the command, or the error response if the message is not a valid command. */
export function readCommand(
  message: unknown,
): { readonly command: Command } | { readonly errorResponse: CommandError } {
  const { error } = validateMessage(message) as { readonly error?: Error };
  if (error === undefined) return { command: message as Command };
  const id = (message as { readonly id?: unknown } | null | undefined)?.id;
  const responseId = Number.isSafeInteger(id) && Number(id) >= 0 ? Number(id) : null;
  return { errorResponse: buildErrorResponse(responseId, error) as CommandError };
}

/**
 * Executes a command. Uses its handler in `also` if there is one, otherwise its handler in {@link commands}. Errors
 * that the caller caused are returned as an error response.
 *
 * @throws all other errors.
 */
export async function handleCommand(
  context: CommandContext,
  { id, method, params }: Command,
  additionalHandlers: Readonly<Record<string, CommandHandler>> = {},
): Promise<CommandSuccess | CommandError> {
  try {
    const handle =
      (Object.hasOwn(additionalHandlers, method) && additionalHandlers[method]) || requireHandler(context, method);
    return await buildSuccess(context, id, await handle(context, params));
  } catch (error) {
    const errorResponse = buildErrorResponse(id, error);
    if (errorResponse === undefined) throw error;
    return errorResponse;
  }
}

/** Returns the handler of a command. @throws CommandRejectedError for unknown commands; FORBIDDEN */
function requireHandler({ caller }: CommandContext, method: string): CommandHandler {
  const command = commands.get(method);
  if (command === undefined) throw createUnsupportedError(method);
  requirePermission(caller, command.permission);
  return command.handle;
}

async function buildSuccess({ agents, threadId }: CommandContext, id: number, result: object): Promise<CommandSuccess> {
  const { threadSeq } = await findReplayPosition(agents.database, agents.deploymentId, threadId);
  return { type: 'success', id, result, meta: { thread_id: threadId, applied_through_seq: threadSeq } };
}

function createUnsupportedError(method: string): CommandRejectedError {
  if (!unsupportedCommands.has(method))
    return new CommandRejectedError('unknown_command', `Unknown command '${method}'.`);
  const hint = method.startsWith('subscription.') ? ' here: subscribe on a WebSocket, or open a stream of events' : '';
  return new CommandRejectedError('not_supported', `The command '${method}' is not supported${hint}.`);
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
  summary: 'Send a command of the event-stream protocol',
  description:
    'run.start {assistant_id, input, config, metadata, multitaskStrategy}, which creates the thread if it does not exist; input.respond {interrupt_id, response} or {responses}, with update and goto; state.get {namespace, keys}; state.listCheckpoints {namespace, limit, before}; state.fork {checkpoint_id, input, config}, which runs from there; agent.getTree. A failed command results in 200 with an `error`, an invalid command in 400.',
  access: runAccess,
  // A command that starts a run is authorised like the creation of a run. Other commands need read access to the
  // thread, which must exist.
  rule: async (input, authorizer, proceed) => {
    const threadId = readThreadId(input);
    const { method, params } = toJsonObject(input.body);
    if (commands.get(method)?.permission !== 'agents:run')
      return createThreadRule('threads:read')(input, authorizer, proceed);
    const { assistant_id, ...startParams } = toJsonObject(params);
    // Only `run.start` can select an assistant; other commands continue with the assistant of the thread.
    const choosesAssistant = method === 'run.start' && typeof assistant_id === 'string';
    const assistantId = choosesAssistant ? assistant_id : await authorizer.rows.findThreadAssistant(threadId);
    const metadata = await authorizer.authorizeNewRun(threadId, { ...startParams, assistant_id: assistantId });
    const required = authorizer.deps.access.threads?.required;
    const exists = await authorizer.rows.rowMatches('threads', threadId, {});
    if (exists && !(await authorizer.rowMatches('threads', threadId, required)))
      throw createThreadNotFoundError(threadId);
    return proceed({ body: { ...input.body, params: { ...toJsonObject(params), metadata } } });
  },
  errors: ['THREAD_NOT_FOUND'],
  schema: {
    params: ThreadParams,
    body: JsonValue({ description: '{id, method, params}.' }),
    response: { 200: Type.Union([Success, Failure]), 400: Failure },
  },
  handler: async ({ params, body, caller, services: { agents }, request }) => {
    const readResult = readCommand(body);
    if ('errorResponse' in readResult) return new RawResponse({ status: 400, body: readResult.errorResponse });
    const threadId = params.thread_id.toLowerCase();
    return new RawResponse({ body: await handleCommand({ agents, caller, request, threadId }, readResult.command) });
  },
});
