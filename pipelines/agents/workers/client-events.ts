import type { CheckpointConfig } from '../graphs/compiled-graph.ts';
import { toCheckpoint } from '../requests/thread-state.ts';

/** Data of LangGraph events of mode `checkpoints`, and of checkpoint events of mode `debug`. */
interface CheckpointEvent {
  readonly config?: CheckpointConfig;
  readonly parentConfig?: CheckpointConfig;
  readonly tasks?: readonly { readonly state?: CheckpointConfig }[];
}

/** Types of message chunks in mode `messages-tuple`; both SDKs distinguish chunks from complete messages by these names. */
const chunkTypes: Readonly<Record<string, string>> = {
  ai: 'AIMessageChunk',
  human: 'HumanMessageChunk',
  system: 'SystemMessageChunk',
  tool: 'ToolMessageChunk',
  function: 'FunctionMessageChunk',
};

/**
 * Converts event data to the form that clients receive. Removes LangGraph internals from the configs of checkpoints.
 */
export function clientEvent(mode: string, data: unknown): unknown {
  if (typeof data !== 'object' || data === null) return data;
  if (mode === 'checkpoints') return convertCheckpoint(data);
  if (mode === 'messages-tuple') return convertMessage(data as readonly [unknown, unknown]);
  if (mode === 'debug' && 'payload' in data && 'type' in data && data.type === 'checkpoint') {
    return { ...data, payload: convertCheckpoint(data.payload as CheckpointEvent) };
  }
  return data;
}

function convertCheckpoint({ config, parentConfig, tasks, ...rest }: CheckpointEvent): object {
  return {
    ...rest,
    config: toClientConfig(config),
    parent_config: toClientConfig(parentConfig),
    checkpoint: toCheckpoint(config),
    parent_checkpoint: toCheckpoint(parentConfig),
    tasks: (tasks ?? []).map(({ state, ...task }) => ({ ...task, ...(state && { state: toClientConfig(state) }) })),
  };
}

function toClientConfig(config: CheckpointConfig | undefined): object | null {
  const checkpoint = toCheckpoint(config);
  return checkpoint && { configurable: checkpoint };
}

function convertMessage([message, metadata]: readonly [unknown, unknown]): unknown {
  if (typeof message !== 'object' || message === null || !('concat' in message) || !('toDict' in message)) {
    return [message, metadata];
  }
  const { type, data } = (message as { toDict(): { type: string; data: object } }).toDict();
  return [{ ...data, type: chunkTypes[type] ?? type }, metadata];
}
