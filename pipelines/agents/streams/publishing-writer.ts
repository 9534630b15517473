/**
 * The events of one attempt on their way into the log.
 *
 * Invariant: events get their places in the log in the order in which they were written; what is on its way is bounded.
 *
 *   1. `write` encodes and numbers the chunks. They wait while an earlier batch has no place in the log yet, and gather.
 *   2. A batch has its place: the next one goes out. Whether the first is durable by then is not waited for, so that a store
 *      that takes its time delays no reader.
 *   3. Too many bytes are on their way: the writer waits until some are durable.
 *   4. A batch fails for good: nothing is published any more, so that there is no hole in what is there.
 */
import type { EventLog, LogMessage } from '../../../infra/event-log/event-log.ts';
import type { Chunk } from '../workers/worker-pool.ts';
import { publishPatiently } from './publish-patiently.ts';
import type { RunStreamWriter } from './stream-ports.ts';

export interface PublishingOptions {
  readonly log: Pick<EventLog, 'publish'>;
  readonly maxBytesInFlight: number;
  readonly patienceMs: number;
  encode(chunks: readonly Chunk[], firstSeq: number): readonly LogMessage[];
}

/** Of one call to the log, unless one event is larger. */
const batchBytes = 1024 * 1024;

export class PublishingWriter implements RunStreamWriter {
  readonly #options: PublishingOptions;
  #nextSeq = 1;
  #waiting: LogMessage[] = [];
  #bytesInFlight = 0;
  #sending = false;
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

  /** Step 2. */
  async #send(): Promise<void> {
    if (this.#sending) return;
    this.#sending = true;
    while (this.#waiting.length > 0 && this.#failure === undefined) {
      const batch = this.#take();
      await new Promise<void>((placed) => {
        publishPatiently(this.#options.log, batch, this.#options.patienceMs, placed)
          .catch((reason: unknown) => {
            this.#failure ??= { reason };
          })
          .finally(() => {
            placed();
            this.#landed(batch);
          });
      });
    }
    this.#sending = false;
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

  #landed(batch: readonly LogMessage[]): void {
    for (const { value } of batch) this.#bytesInFlight -= value.length;
    for (const wake of this.#wakers.splice(0)) wake();
  }

  async #untilInFlight(bytes: number): Promise<void> {
    while (this.#bytesInFlight > bytes && this.#failure === undefined) {
      await new Promise<void>((wake) => this.#wakers.push(wake));
    }
  }
}
