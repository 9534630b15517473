/**
 * The events of one attempt on their way into the log.
 *
 * Invariant: behind the last place of an event in the log stand all that were written after it, in their order; what is on its
 * way is bounded. So a reader that goes on from any place and meets the end has met everything before it.
 *
 *   1. `write` encodes and numbers the chunks. They wait while an earlier batch has no place in the log yet, and gather.
 *   2. A batch has its place: the next one goes out. Whether the first is durable by then is not waited for, so that a store
 *      that takes its time delays no reader.
 *   3. Too many bytes are on their way: the writer waits until some are durable.
 *   4. A batch fails: once nothing is under way, it goes out again with all that were placed behind it, also those that are
 *      durable. Alone, its repeat would stand behind events that come after it.
 *   5. It fails for good: nothing is published any more, so that there is no hole in what is there.
 */
import type { EventLog, LogMessage } from '../../../infra/event-log/event-log.ts';
import { streamEvents } from '../../../schemas/topics.ts';
import type { Chunk } from '../workers/worker-pool.ts';
import { Patience } from './publish-patiently.ts';
import type { RunStreamWriter } from './stream-ports.ts';

export interface PublishingOptions {
  readonly log: Pick<EventLog, 'publish'>;
  readonly maxBytesInFlight: number;
  readonly patienceMs: number;
  encode(chunks: readonly Chunk[], firstSeq: number): readonly LogMessage[];
}

/** A batch in the log whose predecessors, or which itself, may yet fail. */
interface Flight {
  readonly batch: readonly LogMessage[];
  durable: boolean;
  ended: Promise<void>;
}

/** Of one call to the log, unless one event is larger. */
const batchBytes = 1024 * 1024;

export class PublishingWriter implements RunStreamWriter {
  readonly #options: PublishingOptions;
  #nextSeq = 1;
  #waiting: LogMessage[] = [];
  /** Batches that go out again, before what waits. */
  #again: (readonly LogMessage[])[] = [];
  #flights: Flight[] = [];
  #bytesInFlight = 0;
  #sending = false;
  #refusal: { readonly reason: unknown } | undefined;
  #patience: Patience | undefined;
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
      this.#waiting.push(message);
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
      if (this.#refusal) await this.#goBack(this.#refusal.reason);
      else {
        const batch = this.#again.shift() ?? this.#take();
        if (batch.length === 0) break;
        await this.#publish(batch);
      }
    }
    this.#sending = false;
  }

  /** Step 2. Resolves when the batch has its place, or has failed. */
  #publish(batch: readonly LogMessage[]): Promise<void> {
    return new Promise<void>((placed) => {
      const flight: Flight = { batch, durable: false, ended: Promise.resolve() };
      this.#flights.push(flight);
      flight.ended = this.#options.log
        .publish(streamEvents, batch, placed)
        .then(
          () => {
            flight.durable = true;
          },
          (reason: unknown) => {
            this.#refusal ??= { reason };
          },
        )
        .then(() => {
          placed();
          this.#land();
          void this.#send();
        });
    });
  }

  /** Steps 4 and 5. */
  async #goBack(reason: unknown): Promise<void> {
    await Promise.all(this.#flights.map(({ ended }) => ended));
    this.#patience ??= new Patience(this.#options.patienceMs);
    if (await this.#patience.again(reason)) {
      this.#again = [...this.#flights.splice(0).map(({ batch }) => batch), ...this.#again];
      this.#refusal = undefined;
    } else {
      this.#failure = { reason };
      this.#wake();
    }
  }

  #take(): LogMessage[] {
    let count = 0;
    let bytes = 0;
    for (const { value } of this.#waiting) {
      bytes += value.length;
      if (count > 0 && bytes > batchBytes) break;
      count++;
    }
    return this.#waiting.splice(0, count);
  }

  /** Batches are done with in their order. */
  #land(): void {
    while (this.#flights[0]?.durable) {
      for (const { value } of this.#flights.shift()?.batch ?? []) this.#bytesInFlight -= value.length;
      this.#patience = undefined;
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
