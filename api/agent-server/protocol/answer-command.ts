import { replayPlace } from '../../../pipelines/agents/protocol/replay-place.ts';
import { requirePermission } from '../../../pipelines/tenants/caller.ts';
import { compileCheck } from '../../server/schema-check.ts';
import { Command, type CommandError, CommandRefused, type CommandSuccess, refusalOf } from './command.ts';
import { forkState } from './fork-state.ts';
import { listCheckpoints } from './list-checkpoints.ts';
import { getState, getTree } from './read-commands.ts';
import { type CommandScene, respondToInput, startRun } from './run-commands.ts';

type Answering = (scene: CommandScene, params: unknown) => Promise<object>;

const runsGraphs =
  (answer: Answering): Answering =>
  (scene, params) => {
    requirePermission(scene.caller, 'agents:run');
    return answer(scene, params);
  };
const onlyReads =
  (answer: Answering): Answering =>
  (scene, params) => {
    requirePermission(scene.caller, 'agents:read');
    return answer(scene, params);
  };

const commands: Readonly<Record<string, Answering>> = {
  'run.start': runsGraphs(startRun),
  'input.respond': runsGraphs(respondToInput),
  'state.fork': runsGraphs(forkState),
  'state.get': onlyReads(getState),
  'state.listCheckpoints': onlyReads(listCheckpoints),
  'agent.getTree': onlyReads(getTree),
};

/** Commands that the protocol has and nobody answers here (decision 0057); those about subscriptions belong to a WebSocket. */
const notBuilt = new Set([
  'input.inject',
  'subscription.subscribe',
  'subscription.unsubscribe',
  'subscription.reconnect',
]);

const check = compileCheck({ schema: Command, httpPart: 'body', method: '', url: '' });

/** A message as a command, or with what it is refused where it is none. */
export function readCommand(message: unknown): { readonly command: Command } | { readonly refusal: CommandError } {
  const { error } = check(message) as { readonly error?: Error };
  if (error === undefined) return { command: message as Command };
  const id = (message as { readonly id?: unknown } | null | undefined)?.id;
  const known = Number.isSafeInteger(id) && Number(id) >= 0 ? Number(id) : null;
  return { refusal: refusalOf(known, error) as CommandError };
}

/** Answers a command. What the caller asks wrongly is an answer, too. @throws what is not the caller's fault. */
export async function answerCommand(
  scene: CommandScene,
  { id, method, params }: Command,
  also: Readonly<Record<string, Answering>> = {},
): Promise<CommandSuccess | CommandError> {
  try {
    const answering = Object.hasOwn(also, method)
      ? also[method]
      : Object.hasOwn(commands, method)
        ? commands[method]
        : undefined;
    if (answering === undefined) throw refused(method);
    const result = await answering(scene, params);
    return succeeded(scene, id, result);
  } catch (error) {
    const refusal = refusalOf(id, error);
    if (refusal === undefined) throw error;
    return refusal;
  }
}

async function succeeded({ agents, threadId }: CommandScene, id: number, result: object): Promise<CommandSuccess> {
  const { threadSeq } = await replayPlace(agents.database, agents.deploymentId, threadId);
  return { type: 'success', id, result, meta: { thread_id: threadId, applied_through_seq: threadSeq } };
}

function refused(method: string): CommandRefused {
  if (!notBuilt.has(method)) return new CommandRefused('unknown_command', `There is no command '${method}'.`);
  const where = method.startsWith('subscription.') ? ' here: subscribe on a WebSocket, or open a stream of events' : '';
  return new CommandRefused('not_supported', `The command '${method}' is not supported${where}.`);
}
