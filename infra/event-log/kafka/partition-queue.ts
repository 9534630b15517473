import type { Message } from 'kafkajs';
import { pause } from '../../timeouts/backoff.ts';
import type { Appender } from './appender.ts';
import { bytesOf } from './message-bytes.ts';

export interface PartitionQueueOptions {
  readonly topic: string;
  readonly partition: number;
  readonly appender: Pick<Appender, 'append'>;
  readonly batchBytes: number;
  /** Called exactly once for the bytes of each entry, when the queue no longer holds them. */
  released(bytes: number): void;
}

/** A request's messages for one partition. */
export interface Entry {
  readonly appended: Promise<void>;
  /** Rejects the request now and drops its messages that are not in a batch yet. */
  cancel(reason: unknown): void;
}

interface Waiting {
  readonly messages: readonly Message[];
  readonly bytes: number;
  /** True if the queue was idle when the entry arrived, so that the batch in flight has waited no longer than the entry. */
  readonly isFirst: boolean;
  /** Number of messages that are in a batch already. */
  begun: number;
  inFlight: boolean;
  cancelled: boolean;
  readonly done: () => void;
  readonly failed: (reason: unknown) => void;
}

/** Minimum time between batches under load, so that batches are large enough to justify a request. */
const minIntervalMs = 4;

/** Queue of one partition: appends one batch at a time, in the order of arrival. */
export class PartitionQueue {
  readonly #options: PartitionQueueOptions;
  readonly #queue: Waiting[] = [];
  #running: Promise<void> | undefined;
  #batchSince: number | undefined;
  #overdue = false;

  constructor(options: PartitionQueueOptions) {
    this.#options = options;
  }

  /**
   * Whether the batch in flight has been there for `timeoutMs`. The timer that rejects its first request may fire
   * slightly before this clock reaches the limit; `#overdue` covers that moment, so that a request that arrives then
   * does not wait for the whole limit again.
   */
  isOverdue(timeoutMs: number): boolean {
    if (this.#batchSince === undefined) return false;
    return this.#overdue || performance.now() - this.#batchSince > timeoutMs;
  }

  async idle(): Promise<void> {
    while (this.#running) await this.#running;
  }

  add(messages: readonly Message[], bytes: number): Entry {
    let waiting: Waiting | undefined;
    const appended = new Promise<void>((done, failed) => {
      const isFirst = this.#running === undefined;
      waiting = { messages, bytes, isFirst, begun: 0, inFlight: false, cancelled: false, done, failed };
      this.#queue.push(waiting);
    });
    this.#running ??= this.#run();
    return { appended, cancel: (reason) => this.#cancel(waiting as Waiting, reason) };
  }

  #cancel(waiting: Waiting, reason: unknown): void {
    if (waiting.cancelled) return;
    waiting.cancelled = true;
    waiting.failed(reason);
    if (waiting.inFlight) {
      this.#overdue ||= waiting.isFirst;
      return;
    }
    const index = this.#queue.indexOf(waiting);
    if (index < 0) return;
    this.#queue.splice(index, 1);
    this.#options.released(waiting.bytes);
  }

  async #run(): Promise<void> {
    // Requests that arrive in the same turn of the event loop join the first batch.
    await new Promise((resolve) => setImmediate(resolve));
    while (this.#queue.length > 0) {
      const startedAtMs = performance.now();
      await this.#appendNext();
      const restMs = minIntervalMs - (performance.now() - startedAtMs);
      if (restMs > 0) await pause(restMs);
    }
    this.#running = undefined;
  }

  async #appendNext(): Promise<void> {
    const { topic, partition, appender } = this.#options;
    const { messages, parts } = this.#take();
    this.#batchSince = performance.now();
    try {
      await appender.append({ topic, partition, messages });
      for (const waiting of parts) this.#finish(waiting);
    } catch (error) {
      for (const waiting of parts) this.#finish(waiting, error);
    } finally {
      this.#batchSince = undefined;
      this.#overdue = false;
    }
  }

  /** Takes the next messages up to `batchBytes`. A request that does not fit entirely continues in the next batch. */
  #take(): { messages: Message[]; parts: Waiting[] } {
    const messages: Message[] = [];
    const parts: Waiting[] = [];
    let bytes = 0;
    for (const waiting of this.#queue) {
      while (waiting.begun < waiting.messages.length) {
        const message = waiting.messages[waiting.begun] as Message;
        const own = bytesOf(message);
        if (messages.length > 0 && bytes + own > this.#options.batchBytes) return { messages, parts };
        if (!waiting.inFlight) parts.push(waiting);
        waiting.inFlight = true;
        waiting.begun++;
        messages.push(message);
        bytes += own;
      }
    }
    return { messages, parts };
  }

  #finish(waiting: Waiting, error?: unknown): void {
    waiting.inFlight = false;
    if (error === undefined && !waiting.cancelled && waiting.begun < waiting.messages.length) return;
    this.#queue.splice(this.#queue.indexOf(waiting), 1);
    this.#options.released(waiting.bytes);
    if (error === undefined) waiting.done();
    else waiting.failed(error);
  }
}
