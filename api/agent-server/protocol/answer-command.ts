import { replayPosition } from '../../../pipelines/agents/protocol/replay-position.ts';
import { requirePermission } from '../../../pipelines/tenants/caller.ts';
import { compileCheck } from '../../server/schema-check.ts';
import { buildRefusal, Command, type CommandError, CommandRefused, type CommandSuccess } from './command.ts';
import { forkState } from './fork-state.ts';
import { listCheckpoints } from './list-checkpoints.ts';
import { getState, getTree } from './read-commands.ts';
import { type CommandScene, respondToInput, startRun } from './run-commands.ts';

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
