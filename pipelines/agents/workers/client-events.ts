import type { GraphPlace } from '../graphs/compiled-graph.ts';
import { checkpointOf } from '../requests/thread-state.ts';

/** What the library puts into an event of mode `checkpoints`, or into one of mode `debug` about a checkpoint. */
interface CheckpointEvent {
  readonly config?: GraphPlace;
  readonly parentConfig?: GraphPlace;
  readonly tasks?: readonly { readonly state?: GraphPlace }[];
}

/** Pieces of messages are told from whole ones by their type, which both SDKs expect so in mode `messages-tuple`. */
const pieceTypes: Readonly<Record<string, string>> = {
  ai: 'AIMessageChunk',
  human: 'HumanMessageChunk',
  system: 'SystemMessageChunk',
  tool: 'ToolMessageChunk',
  function: 'FunctionMessageChunk',
};

/** An event as clients get it: without the machinery that the library leaves in the configs of checkpoints. */
export function clientEvent(mode: string, data: unknown): unknown {
  if (typeof data !== 'object' || data === null) return data;
  if (mode === 'checkpoints') return checkpointEvent(data);
  if (mode === 'messages-tuple') return messageEvent(data as readonly [unknown, unknown]);
  if (mode === 'debug' && 'payload' in data && 'type' in data && data.type === 'checkpoint') {
    return { ...data, payload: checkpointEvent(data.payload as CheckpointEvent) };
  }
  return data;
}

function checkpointEvent({ config, parentConfig, tasks, ...rest }: CheckpointEvent): object {
  return {
    ...rest,
    config: place(config),
    parent_config: place(parentConfig),
    checkpoint: checkpointOf(config),
    parent_checkpoint: checkpointOf(parentConfig),
    tasks: (tasks ?? []).map(({ state, ...task }) => ({ ...task, ...(state && { state: place(state) }) })),
  };
}

function place(config: GraphPlace | undefined): object | null {
  const checkpoint = checkpointOf(config);
  return checkpoint && { configurable: checkpoint };
}

function messageEvent([message, metadata]: readonly [unknown, unknown]): unknown {
  if (typeof message !== 'object' || message === null || !('concat' in message) || !('toDict' in message)) {
    return [message, metadata];
  }
  const { type, data } = (message as { toDict(): { type: string; data: object } }).toDict();
  return [{ ...data, type: pieceTypes[type] ?? type }, metadata];
}
