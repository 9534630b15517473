import { isRunlakeError } from '../../../../infra/errors/runlake-error.ts';
import type { CheckpointConfig } from '../../graphs/compiled-graph.ts';
import { toCheckpoint } from '../../requests/thread-state.ts';
import { createWarningChunk } from '../../streams/stream-types.ts';
import { requireChunk } from '../message-codec.ts';
import type { Chunk } from '../messages.ts';
import { toGraphJson } from './graph-json.ts';
import type { GraphStreamEvent } from './stream-graph.ts';

const dropped = 'The stream does not contain the event.';

/**
 * Serialises an event. If the event is too large or cannot be serialised, returns a `warning` event in its place, and
 * the run continues. Clients would take an `error` event for the end of the run.
 */
export function encodeEventChunk({ mode, event, namespace, data }: GraphStreamEvent, maxBytes: number): Chunk {
  let text: string;
  try {
    text = toGraphJson(toClientEventData(mode, data));
  } catch (error) {
    const reason = (error instanceof Error ? error.message : String(error)).split('\n', 1)[0]?.slice(0, 1_000);
    const message = `Event '${event}' of the graph cannot be encoded as JSON: ${reason}. ${dropped}`;
    return createWarningChunk(message, 'EventNotSerializable');
  }
  const bytes = Buffer.from(text);
  if (bytes.byteLength > maxBytes) {
    const limit = `the limit is ${maxBytes}`;
    return createWarningChunk(`Event '${event}' has ${bytes.byteLength} bytes; ${limit}. ${dropped}`, 'EventTooLarge');
  }
  const chunk = { mode, event, namespace, data: bytes };
  try {
    requireChunk(chunk, maxBytes);
    return chunk;
  } catch (error) {
    if (!isRunlakeError(error)) throw error;
    const message = `Event '${event}' cannot be sent: ${error.parameters.reason}. ${dropped}`;
    return createWarningChunk(message, 'EventTooLarge');
  }
}

/** Data of events of LangGraph's mode `checkpoints`, and of checkpoint events of its mode `debug`. */
interface CheckpointEvent {
  readonly config?: CheckpointConfig;
  readonly parentConfig?: CheckpointConfig;
  readonly tasks?: readonly { readonly state?: CheckpointConfig }[];
}

/**
 * Types of message chunks in mode `messages-tuple`, by message type. Both SDKs distinguish chunks from complete
 * messages by these names.
 */
const typeByChunkType: ReadonlyMap<string, string> = new Map([
  ['ai', 'AIMessageChunk'],
  ['human', 'HumanMessageChunk'],
  ['system', 'SystemMessageChunk'],
  ['tool', 'ToolMessageChunk'],
  ['function', 'FunctionMessageChunk'],
]);

/** Converts event data to the form that clients receive. Removes LangGraph internals from checkpoint configs. */
function toClientEventData(mode: string, data: unknown): unknown {
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
  return [{ ...data, type: typeByChunkType.get(type) ?? type }, metadata];
}
