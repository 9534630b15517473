/**
 * Publishes the events of one attempt to the log.
 *
 * Invariant: after the last copy of an event in the log, all later events follow in order; the bytes in flight are
 * bounded. So a reader that continues from any offset and reaches the end has seen every event before it.
 *
 *   1. `write` encodes and numbers the chunks. They are buffered while an earlier batch has no offset in the log yet.
 *   2. When a batch has its offset, the next batch is sent. The writer does not wait until the earlier batch is
 *      durable, so a slow store does not delay readers.
 *   3. If too many bytes are in flight, the writer waits until some are durable.
 *   4. If a batch fails, the writer waits until no batch is in flight, and sends the failed batch and all later ones
 *      again, including those that are durable. If it sent only the failed batch again, that batch would follow later
 *      events in the log.
 *   5. After a permanent failure nothing more is published, so that the published events have no gap.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { isTransient } from '../../../infra/errors/runlake-error.ts';
import { buildWirePrefix } from '../../../infra/event-log/avro.ts';
import type { EventLog, LogMessage } from '../../../infra/event-log/event-log.ts';
import { streamEvents } from '../../../schemas/topics.ts';
import { encodeStreamEvents } from '../../streams/encode-stream-event.ts';
import type { Chunk } from '../workers/messages.ts';
import {
  createWarningChunk,
  endSeq,
  type RunEnd,
  type RunStreamStart,
  type RunStreamWriter,
  type StreamPublisher,
  toThreadSeq,
} from './stream-types.ts';

export interface StreamPublisherOptions {
  readonly log: Pick<EventLog, 'publish' | 'schemaId'>;
  /** Retention of the events of resumable runs. */
  readonly retentionMs: number;
  /** Maximum event size; a larger event is replaced by a `warning` event. Default: 8 MiB. */
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
    retentionMs,
    maxEventBytes = 8 * 1024 * 1024,
    maxBytesInFlight = 4 * 1024 * 1024,
    retryTimeoutMs = 120_000,
  } = options;
  const prefix = buildWirePrefix(log.schemaId(streamEvents));

  function encode(
    start: RunStreamStart,
    chunks: readonly Chunk[],
    numbering: { readonly firstSeq: number; readonly isEnd: boolean; readonly createdAtMicros: number },
  ): readonly LogMessage[] {
    const key = `${start.deploymentId}:${start.threadId}`;
    const { deploymentId, threadId, runId, attempt, kept } = start;
    const { firstSeq, isEnd, createdAtMicros } = numbering;
    const expiresAtMicros = createdAtMicros + retentionMs * 1_000;
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
            chunks.map((chunk) =>
              chunk.data.length > maxEventBytes ? replaceOversizedEvent(chunk, maxEventBytes) : chunk,
            ),
            { firstSeq, isEnd: false, createdAtMicros: Date.now() * 1_000 },
          ),
      }),
    async publishEnd({ data, endedAtMicros, ...start }) {
      const end = { mode: 'end', event: 'end', namespace: '', data: truncateEndEvent(data, maxEventBytes) };
      const messages = encode(start, [end], { firstSeq: endSeq, isEnd: true, createdAtMicros: endedAtMicros });
      await publishWithRetry(log, messages, retryTimeoutMs);
    },
  };
}

function replaceOversizedEvent({ event, namespace, data }: Chunk, maxEventBytes: number): Chunk {
  const message = `Event '${event}' has ${data.length} bytes; the limit is ${maxEventBytes}. The stream does not contain the event.`;
  return { ...createWarningChunk(message, 'EventTooLarge'), namespace };
}

/**
 * Removes values and interrupts if the end event would be too large to publish. Readers then read them from Postgres.
 */
function truncateEndEvent(data: Uint8Array, maxEventBytes: number): Uint8Array {
  if (data.length <= maxEventBytes) return data;
  const { values: _, interrupts: __, ...rest } = JSON.parse(Buffer.from(data).toString('utf8')) as RunEnd;
  return Buffer.from(JSON.stringify(rest));
}

const minPauseMs = 50;
const maxPauseMs = 1_000;

/**
 * Exponential backoff for publishing: each pause is twice as long as the previous one, up to a maximum, and retries end
 * `ms` milliseconds after the object was created.
 */
class RetryBackoff {
  readonly #endsAtMs: number;
  #pauseMs = minPauseMs;

  constructor(ms: number) {
    this.#endsAtMs = performance.now() + ms;
  }

  /**
   * Pauses before the next attempt.
   *
   * @returns false, without a pause, if `reason` is not retryable or the deadline would pass.
   */
  async waitForRetry(reason: unknown): Promise<boolean> {
    const isRetryable = isTransient(reason) && reason.code !== 'DRAINING';
    if (!isRetryable || performance.now() + this.#pauseMs > this.#endsAtMs) return false;
    await pause(this.#pauseMs);
    this.#pauseMs = Math.min(this.#pauseMs * 2, maxPauseMs);
    return true;
  }
}

/**
 * Publishes stream events and retries transient errors of the log for at most `retryTimeoutMs`. Readers deduplicate
 * repeated events.
 *
 * @throws errors of the log; at once if they are not transient.
 */
async function publishWithRetry(
  log: Pick<EventLog, 'publish'>,
  messages: readonly LogMessage[],
  retryTimeoutMs: number,
): Promise<void> {
  for (const backoff = new RetryBackoff(retryTimeoutMs); ; ) {
    try {
      return await log.publish(streamEvents, messages);
    } catch (error) {
      if (!(await backoff.waitForRetry(error))) throw error;
    }
  }
}

export interface PublishingOptions {
  readonly log: Pick<EventLog, 'publish'>;
  readonly maxBytesInFlight: number;
  readonly retryTimeoutMs: number;
  encode(chunks: readonly Chunk[], firstSeq: number): readonly LogMessage[];
}

/** A batch that was sent; the batch itself or an earlier one may still fail. */
interface InFlightBatch {
  readonly batch: readonly LogMessage[];
  isDurable: boolean;
  ended: Promise<void>;
}

/** Maximum bytes of one publish call, unless a single event is larger. */
const maxBatchBytes = 1024 * 1024;

class PublishingWriter implements RunStreamWriter {
  readonly #options: PublishingOptions;
  #nextSeq = 1;
  #buffer: LogMessage[] = [];
  /** Batches to send again, before the buffered messages. */
  #resend: (readonly LogMessage[])[] = [];
  #inFlight: InFlightBatch[] = [];
  #bytesInFlight = 0;
  #isSending = false;
  #rejection: { readonly reason: unknown } | undefined;
  #backoff: RetryBackoff | undefined;
  #failure: { readonly reason: unknown } | undefined;
  #waiters: (() => void)[] = [];

  constructor(options: PublishingOptions) {
    this.#options = options;
  }

  async write(chunks: readonly Chunk[]): Promise<void> {
    if (chunks.length === 0 || this.#failure !== undefined) return;
    const messages = this.#options.encode(chunks, this.#nextSeq);
    this.#nextSeq += messages.length;
    for (const message of messages) {
      this.#buffer.push(message);
      this.#bytesInFlight += message.value.length;
    }
    void this.#send();
    await this.#untilInFlight(this.#options.maxBytesInFlight);
  }

  async settled(): Promise<void> {
    await this.#untilInFlight(0);
    if (this.#failure !== undefined) throw this.#failure.reason;
  }

  async #send(): Promise<void> {
    if (this.#isSending) return;
    this.#isSending = true;
    while (this.#failure === undefined) {
      if (this.#rejection) await this.#resendInFlight(this.#rejection.reason);
      else {
        const batch = this.#resend.shift() ?? this.#take();
        if (batch.length === 0) break;
        await this.#publish(batch);
      }
    }
    this.#isSending = false;
  }

  /** Step 2 of the header comment: sends a batch. Resolves when the batch has its offset in the log, or has failed. */
  #publish(batch: readonly LogMessage[]): Promise<void> {
    return new Promise<void>((resolve) => {
      const inFlightBatch: InFlightBatch = { batch, isDurable: false, ended: Promise.resolve() };
      this.#inFlight.push(inFlightBatch);
      inFlightBatch.ended = this.#options.log
        .publish(streamEvents, batch, resolve)
        .then(
          () => {
            inFlightBatch.isDurable = true;
          },
          (reason: unknown) => {
            this.#rejection ??= { reason };
          },
        )
        .then(() => {
          resolve();
          this.#removeDurable();
          void this.#send();
        });
    });
  }

  /**
   * Steps 4 and 5 of the header comment: prepares to send failed batches again, or gives up after a permanent failure.
   */
  async #resendInFlight(reason: unknown): Promise<void> {
    await Promise.all(this.#inFlight.map(({ ended }) => ended));
    this.#backoff ??= new RetryBackoff(this.#options.retryTimeoutMs);
    if (await this.#backoff.waitForRetry(reason)) {
      this.#resend = [...this.#inFlight.splice(0).map(({ batch }) => batch), ...this.#resend];
      this.#rejection = undefined;
    } else {
      this.#failure = { reason };
      this.#wake();
    }
  }

  #take(): LogMessage[] {
    let count = 0;
    let bytes = 0;
    for (const { value } of this.#buffer) {
      bytes += value.length;
      if (count > 0 && bytes > maxBatchBytes) break;
      count++;
    }
    return this.#buffer.splice(0, count);
  }

  /** Removes durable batches from the front of the queue, in order. */
  #removeDurable(): void {
    while (this.#inFlight[0]?.isDurable) {
      for (const { value } of this.#inFlight.shift()?.batch ?? []) this.#bytesInFlight -= value.length;
      this.#backoff = undefined;
    }
    this.#wake();
  }

  #wake(): void {
    for (const wake of this.#waiters.splice(0)) wake();
  }

  async #untilInFlight(bytes: number): Promise<void> {
    while (this.#bytesInFlight > bytes && this.#failure === undefined) {
      await new Promise<void>((wake) => this.#waiters.push(wake));
    }
  }
}
