import { clientEvent } from './client-events.ts';
import { graphJson } from './graph-json.ts';
import type { Streamed } from './stream-graph.ts';
import type { Chunk } from './worker-pool.ts';

/** Maximum size of one event that a graph streams. The event log and each client handle it as one message. */
export const maxEventBytes = 8 * 1024 ** 2;

/** Serialises an event. If it is too large or not serialisable, returns an `error` event in its place; the run continues. */
export function eventChunk({ mode, event, namespace, data }: Streamed, maxBytes: number): Chunk {
  let text: string;
  try {
    text = graphJson(clientEvent(mode, data));
  } catch (error) {
    const reason = (error instanceof Error ? error.message : String(error)).split('\n', 1)[0]?.slice(0, 1_000);
    return errorChunk('EventNotSerializable', `Event '${event}' of the graph cannot be encoded as JSON: ${reason}`);
  }
  const bytes = Buffer.from(text);
  if (bytes.byteLength <= maxBytes) return { mode, event, namespace, data: bytes };
  const limit = `the limit is ${maxBytes}`;
  const message = `Event '${event}' has ${bytes.byteLength} bytes; ${limit}. The event is dropped; the run continues.`;
  return errorChunk('EventTooLarge', message);
}

/** Creates a `warning` event, which reports in every stream mode that a part of the request has no effect. */
export function warningChunk(message: string): Chunk {
  return { mode: 'warning', event: 'warning', namespace: '', data: Buffer.from(JSON.stringify({ message })) };
}

function errorChunk(error: string, message: string): Chunk {
  return { mode: 'error', event: 'error', namespace: '', data: Buffer.from(JSON.stringify({ error, message })) };
}
