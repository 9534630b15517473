import type { Message } from 'kafkajs';
import type { Appender } from './appender.ts';
import { bytesOf } from './message-bytes.ts';
import { pause } from './pause.ts';

export interface LaneOptions {
  readonly topic: string;
  readonly partition: number;
  readonly appender: Pick<Appender, 'append'>;
  readonly batchBytes: number;
  /** Called once for bytes that are held no longer. */
  released(bytes: number): void;
}

/** A request's messages for one partition. */
export interface Entry {
  readonly appended: Promise<void>;
  /** Rejects the request now and forgets what of it has not begun. */
  giveUp(reason: unknown): void;
}

interface Waiting {
  readonly messages: readonly Message[];
  readonly bytes: number;
  /** Found the lane idle, so that the batch under way is no older than its own waiting. */
  readonly isFirst: boolean;
  /** Messages that are in a batch already. */
  begun: number;
  underWay: boolean;
  givenUp: boolean;
  readonly done: () => void;
  readonly failed: (reason: unknown) => void;
}

/** Under load batches leave no faster than this, so that they are worth their request. */
const leastIntervalMs = 4;

/** The way into one partition: one batch at a time, in the order of arrival. */
export class Lane {
  readonly #options: LaneOptions;
  readonly #queue: Waiting[] = [];
  #running: Promise<void> | undefined;
  #batchSince: number | undefined;
  #overdue = false;

  constructor(options: LaneOptions) {
    this.#options = options;
  }

  /**
   * Whether the batch that is under way has been so for `timeoutMs`. The request that began it was given up then, by a timer that
   * may be a moment ahead of this clock: whoever comes in that moment is not to wait as long again.
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
      waiting = { messages, bytes, isFirst, begun: 0, underWay: false, givenUp: false, done, failed };
      this.#queue.push(waiting);
    });
    this.#running ??= this.#run();
    return { appended, giveUp: (reason) => this.#giveUp(waiting as Waiting, reason) };
  }

  #giveUp(waiting: Waiting, reason: unknown): void {
    if (waiting.givenUp) return;
    waiting.givenUp = true;
    waiting.failed(reason);
    if (waiting.underWay) {
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
      const restMs = leastIntervalMs - (performance.now() - startedAtMs);
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
      for (const waiting of parts) this.#settle(waiting);
    } catch (error) {
      for (const waiting of parts) this.#settle(waiting, error);
    } finally {
      this.#batchSince = undefined;
      this.#overdue = false;
    }
  }

  /** The next messages up to the bound; a request that does not fit in whole goes on in the next batch. */
  #take(): { messages: Message[]; parts: Waiting[] } {
    const messages: Message[] = [];
    const parts: Waiting[] = [];
    let bytes = 0;
    for (const waiting of this.#queue) {
      while (waiting.begun < waiting.messages.length) {
        const message = waiting.messages[waiting.begun] as Message;
        const own = bytesOf(message);
        if (messages.length > 0 && bytes + own > this.#options.batchBytes) return { messages, parts };
        if (!waiting.underWay) parts.push(waiting);
        waiting.underWay = true;
        waiting.begun++;
        messages.push(message);
        bytes += own;
      }
    }
    return { messages, parts };
  }

  #settle(waiting: Waiting, error?: unknown): void {
    waiting.underWay = false;
    if (error === undefined && !waiting.givenUp && waiting.begun < waiting.messages.length) return;
    this.#queue.splice(this.#queue.indexOf(waiting), 1);
    this.#options.released(waiting.bytes);
    if (error === undefined) waiting.done();
    else waiting.failed(error);
  }
}
