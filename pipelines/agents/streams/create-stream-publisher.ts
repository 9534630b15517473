import { wirePrefix } from '../../../infra/event-log/avro.ts';
import type { EventLog, LogMessage } from '../../../infra/event-log/event-log.ts';
import { streamEvents } from '../../../schemas/topics.ts';
import { encodeStreamEvents } from '../../streams/encode-stream-event.ts';
import type { Chunk } from '../workers/worker-pool.ts';
import { publishPatiently } from './publish-patiently.ts';
import { PublishingWriter } from './publishing-writer.ts';
import { endSeq, toThreadSeq } from './stream-numbers.ts';
import type { RunEnd, RunStreamStart, StreamPublisher } from './stream-types.ts';

export interface StreamPublisherOptions {
  readonly log: Pick<EventLog, 'publish' | 'schemaId'>;
  /** Retention of the events of resumable runs. */
  readonly keptMs: number;
  /** Maximum event size; a larger event is replaced by an `error` event. Default: 8 MiB. */
  readonly maxEventBytes?: number;
  /** Maximum unacknowledged bytes of one run; the writer waits at the limit. Default: 4 MiB. */
  readonly maxBytesInFlight?: number;
  /** Retry deadline while the log is unavailable; must exceed the start time of a broker. Default: 120 s. */
  readonly retryTimeoutMs?: number;
}

/** Creates a publisher of run events on the topic `stream-events`. */
export function createStreamPublisher(options: StreamPublisherOptions): StreamPublisher {
  const {
    log,
    keptMs,
    maxEventBytes = 8 * 1024 * 1024,
    maxBytesInFlight = 4 * 1024 * 1024,
    retryTimeoutMs = 120_000,
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
      // A run that was never started has no sequence numbers in its thread.
      const threadSeq = attempt === 0 ? 0 : toThreadSeq(start.threadStart, seq);
      return { seq, threadSeq, mode, event, namespace, data, isEnd };
    });
    return encodeStreamEvents(prefix, head, events).map((value) => ({ key, value }));
  }

  return {
    open: (start) =>
      new PublishingWriter({
        log,
        maxBytesInFlight,
        retryTimeoutMs,
        encode: (chunks, firstSeq) =>
          encode(
            start,
            chunks.map((chunk) => (chunk.data.length > maxEventBytes ? replaceTooLarge(chunk, maxEventBytes) : chunk)),
            { firstSeq, isEnd: false, createdAtMicros: Date.now() * 1_000 },
          ),
      }),
    async publishEnd({ data, endedAtMicros, ...start }) {
      const end = { mode: 'end', event: 'end', namespace: '', data: fitEnd(data, maxEventBytes) };
      const messages = encode(start, [end], { firstSeq: endSeq, isEnd: true, createdAtMicros: endedAtMicros });
      await publishPatiently(log, messages, retryTimeoutMs);
    },
  };
}

function replaceTooLarge({ event, namespace, data }: Chunk, maxEventBytes: number): Chunk {
  const message = `Event '${event}' has ${data.length} bytes; the limit is ${maxEventBytes}. The event is dropped; the run continues.`;
  return {
    mode: 'error',
    event: 'error',
    namespace,
    data: Buffer.from(JSON.stringify({ error: 'EventTooLarge', message })),
  };
}

/** Removes values and interrupts if the end event would be too large to publish. Readers then read them from Postgres. */
function fitEnd(data: Uint8Array, maxEventBytes: number): Uint8Array {
  if (data.length <= maxEventBytes) return data;
  const { values: _, interrupts: __, ...rest } = JSON.parse(Buffer.from(data).toString('utf8')) as RunEnd;
  return Buffer.from(JSON.stringify(rest));
}
