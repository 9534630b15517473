import type { EventLog, LogMessage } from '../../../infra/event-log/event-log.ts';
import { wirePrefix } from '../../../infra/event-log/wire-format.ts';
import { streamEvents } from '../../../schemas/topics.ts';
import { encodeStreamEvents } from '../../streams/encode-stream-event.ts';
import type { Chunk } from '../workers/worker-pool.ts';
import { publishPatiently } from './publish-patiently.ts';
import { PublishingWriter } from './publishing-writer.ts';
import { endSeq, threadSeqOf } from './stream-numbers.ts';
import type { RunEnd, RunStreamStart, StreamPublisher } from './stream-ports.ts';

export interface StreamPublisherOptions {
  readonly log: Pick<EventLog, 'publish' | 'schemaId'>;
  /** How long events of resumable runs can be read. */
  readonly keptMs: number;
  /** A larger event becomes an `error` event that says so. Default: 8 MiB. */
  readonly maxEventBytes?: number;
  /** Of one run, on their way into the log; beyond, its writer waits. Default: 4 MiB. */
  readonly maxBytesInFlight?: number;
  /** How long a log that takes nothing is tried again: longer than a broker takes to start. Default: 120 s. */
  readonly patienceMs?: number;
}

/** Publishes the events of runs on the topic `stream-events`. */
export function createStreamPublisher(options: StreamPublisherOptions): StreamPublisher {
  const {
    log,
    keptMs,
    maxEventBytes = 8 * 1024 * 1024,
    maxBytesInFlight = 4 * 1024 * 1024,
    patienceMs = 120_000,
  } = options;
  const prefix = wirePrefix(log.schemaId(streamEvents));

  function encode(
    start: RunStreamStart,
    chunks: readonly Chunk[],
    numbered: { readonly firstSeq: number; readonly isEnd: boolean; readonly createdAtMicros: number },
  ): readonly LogMessage[] {
    const key = `${start.deploymentId}:${start.threadId}`;
    const { deploymentId, threadId, runId, attempt, kept } = start;
    const { firstSeq, isEnd, createdAtMicros } = numbered;
    const expiresAtMicros = createdAtMicros + keptMs * 1_000;
    const head = { deploymentId, threadId, runId, attempt, kept, createdAtMicros, expiresAtMicros };
    const events = chunks.map(({ mode, event, namespace, data }, index) => {
      const seq = firstSeq + index;
      // A run that was never started has no place in its thread.
      const threadSeq = attempt === 0 ? 0 : threadSeqOf(start.threadStart, seq);
      return { seq, threadSeq, mode, event, namespace, data, isEnd };
    });
    return encodeStreamEvents(prefix, head, events).map((value) => ({ key, value }));
  }

  return {
    open: (start) =>
      new PublishingWriter({
        log,
        maxBytesInFlight,
        patienceMs,
        encode: (chunks, firstSeq) =>
          encode(
            start,
            chunks.map((chunk) => (chunk.data.length > maxEventBytes ? tooLarge(chunk, maxEventBytes) : chunk)),
            { firstSeq, isEnd: false, createdAtMicros: Date.now() * 1_000 },
          ),
      }),
    async publishEnd({ data, endedAtMicros, ...start }) {
      const end = { mode: 'end', event: 'end', namespace: '', data: fitting(data, maxEventBytes) };
      const messages = encode(start, [end], { firstSeq: endSeq, isEnd: true, createdAtMicros: endedAtMicros });
      await publishPatiently(log, messages, patienceMs);
    },
  };
}

function tooLarge({ event, namespace, data }: Chunk, maxEventBytes: number): Chunk {
  const message = `The event '${event}' has ${data.length} bytes, more than the ${maxEventBytes} that one event may have. The run goes on.`;
  return {
    mode: 'error',
    event: 'error',
    namespace,
    data: Buffer.from(JSON.stringify({ error: 'EventTooLarge', message })),
  };
}

/** Else the end could never be published. Readers of a large state, or of large questions, take them from the row of the thread. */
function fitting(data: Uint8Array, maxEventBytes: number): Uint8Array {
  if (data.length <= maxEventBytes) return data;
  const { values: _, interrupts: __, ...rest } = JSON.parse(Buffer.from(data).toString('utf8')) as RunEnd;
  return Buffer.from(JSON.stringify(rest));
}
