import { clientEvent } from './client-events.ts';
import { graphJson } from './graph-json.ts';
import type { Streamed } from './stream-graph.ts';
import type { Chunk } from './worker-pool.ts';

/** What was streamed, as text, once. What is too large or cannot be text becomes an event `error` that says so; the run goes on. */
export function eventChunk({ mode, event, namespace, data }: Streamed, maxBytes: number): Chunk {
  let text: string;
  try {
    text = graphJson(clientEvent(mode, data));
  } catch (error) {
    const reason = (error instanceof Error ? error.message : String(error)).split('\n', 1)[0]?.slice(0, 1_000);
    return failure('EventNotSerializable', `An event '${event}' of the graph cannot be written as JSON: ${reason}`);
  }
  const bytes = Buffer.from(text);
  if (bytes.byteLength <= maxBytes) return { mode, event, namespace, data: bytes };
  const message = `An event '${event}' of ${bytes.byteLength} bytes is larger than ${maxBytes} (RUNLAKE_AGENTS_MAX_EVENT_BYTES). It was left out; the run goes on.`;
  return failure('EventTooLarge', message);
}

/** Tells readers of a run, in each mode, that something that was asked for has no effect. */
export function warningChunk(message: string): Chunk {
  return { mode: 'warning', event: 'warning', namespace: '', data: Buffer.from(JSON.stringify({ message })) };
}

function failure(error: string, message: string): Chunk {
  return { mode: 'error', event: 'error', namespace: '', data: Buffer.from(JSON.stringify({ error, message })) };
}
