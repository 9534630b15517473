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
import type { EventLog, LogMessage } from '../../../infra/event-log/event-log.ts';
import { streamEvents } from '../../../schemas/topics.ts';
import type { Chunk } from '../workers/worker-pool.ts';
import { RetryBackoff } from './publish-patiently.ts';
import type { RunStreamWriter } from './stream-types.ts';

export interface PublishingOptions {
  readonly log: Pick<EventLog, 'publish'>;
  readonly maxBytesInFlight: number;
  readonly retryTimeoutMs: number;
  encode(chunks: readonly Chunk[], firstSeq: number): readonly LogMessage[];
}

/** A batch that was sent; the batch itself or an earlier one may still fail. */
interface InFlightBatch {
  readonly batch: readonly LogMessage[];
  durable: boolean;
  ended: Promise<void>;
}

/** Maximum bytes of one publish call, unless a single event is larger. */
const batchBytes = 1024 * 1024;

export class PublishingWriter implements RunStreamWriter {
  readonly #options: PublishingOptions;
  #nextSeq = 1;
  #buffer: LogMessage[] = [];
  /** Batches to send again, before the buffered messages. */
  #resend: (readonly LogMessage[])[] = [];
  #flights: InFlightBatch[] = [];
  #bytesInFlight = 0;
  #sending = false;
  #rejection: { readonly reason: unknown } | undefined;
  #backoff: RetryBackoff | undefined;
  #failure: { readonly reason: unknown } | undefined;
  #wakers: (() => void)[] = [];

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
    if (this.#sending) return;
    this.#sending = true;
    while (this.#failure === undefined) {
      if (this.#rejection) await this.#retryFlights(this.#rejection.reason);
      else {
        const batch = this.#resend.shift() ?? this.#take();
        if (batch.length === 0) break;
        await this.#publish(batch);
      }
    }
    this.#sending = false;
  }

  /** Step 2 of the header comment: sends a batch. Resolves when the batch has its offset in the log, or has failed. */
  #publish(batch: readonly LogMessage[]): Promise<void> {
    return new Promise<void>((placed) => {
      const flight: InFlightBatch = { batch, durable: false, ended: Promise.resolve() };
      this.#flights.push(flight);
      flight.ended = this.#options.log
        .publish(streamEvents, batch, placed)
        .then(
          () => {
            flight.durable = true;
          },
          (reason: unknown) => {
            this.#rejection ??= { reason };
          },
        )
        .then(() => {
          placed();
          this.#removeDurable();
          void this.#send();
        });
    });
  }

  /**
   * Steps 4 and 5 of the header comment: prepares to send failed batches again, or gives up after a permanent failure.
   */
  async #retryFlights(reason: unknown): Promise<void> {
    await Promise.all(this.#flights.map(({ ended }) => ended));
    this.#backoff ??= new RetryBackoff(this.#options.retryTimeoutMs);
    if (await this.#backoff.retryAfter(reason)) {
      this.#resend = [...this.#flights.splice(0).map(({ batch }) => batch), ...this.#resend];
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
      if (count > 0 && bytes > batchBytes) break;
      count++;
    }
    return this.#buffer.splice(0, count);
  }

  /** Removes durable batches from the front of the queue, in order. */
  #removeDurable(): void {
    while (this.#flights[0]?.durable) {
      for (const { value } of this.#flights.shift()?.batch ?? []) this.#bytesInFlight -= value.length;
      this.#backoff = undefined;
    }
    this.#wake();
  }

  #wake(): void {
    for (const wake of this.#wakers.splice(0)) wake();
  }

  async #untilInFlight(bytes: number): Promise<void> {
    while (this.#bytesInFlight > bytes && this.#failure === undefined) {
      await new Promise<void>((wake) => this.#wakers.push(wake));
    }
  }
}
