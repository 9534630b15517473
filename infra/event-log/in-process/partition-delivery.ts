/**
 * Delivers the records of one partition of the in-process log to its consumer groups.
 *
 * Invariant: records are delivered in order, one batch at a time. A batch ends only when every group has stored it.
 *
 *   1. Take the waiting records, up to the limits of the groups, as one batch. A large request is divided among several.
 *   2. Deliver the batch to each group. If a group rejects it, deliver it to that group again after a pause.
 *   3. Report the requests as stored whose last record was in the batch.
 *   4. Gather requests for the next batch, because an insert of few rows takes nearly as long as one of many. Gathering
 *      ends early if the batch is full or a reader waits for it.
 */
import { runWithoutTenant } from '../../fairness/tenant-context.ts';
import type { Logger } from '../../telemetry/logger.ts';
import { pause } from '../../timeouts/backoff.ts';
import type { LogRecord, Subscription } from '../event-log.ts';

/** The records of a request that are waiting for delivery, at least one. */
export interface Delivery {
  readonly records: readonly LogRecord[];
  readonly bytes: number;
  readonly onStored: () => void;
}

interface Batch {
  readonly records: readonly LogRecord[];
  /** The requests whose last record is in the batch. */
  readonly completed: readonly Delivery[];
}

interface DeliveryOptions {
  readonly partition: number;
  readonly logger: Logger;
  /** Called after a batch was stored or rejected. */
  readonly onProgress: () => void;
}

/** Pause before a rejected batch is delivered again. */
const retryPauseMs = 1_000;
/** Maximum time for gathering: as a multiple of the time that the last batch took, and in milliseconds. */
const maxGatheringFactor = 3;
const maxGatheringMs = 500;

export class PartitionDelivery {
  readonly #options: DeliveryOptions;
  readonly #subscriptions: Subscription[] = [];
  readonly #queue: Delivery[] = [];
  /** Number of records of the first request in the queue that were taken. */
  #taken = 0;
  #queuedRows = 0;
  #queuedBytes = 0;
  #delivering: Promise<void> | undefined;
  /** Ends gathering early when it is aborted. There is a new one for each batch. */
  #gathering = new AbortController();
  readonly #closing = new AbortController();
  #isRejected = false;

  constructor(options: DeliveryOptions) {
    this.#options = options;
  }

  /** True from the time that a group rejects a batch until it accepts the batch. */
  get isRejected(): boolean {
    return this.#isRejected;
  }

  subscribe(subscription: Subscription): void {
    this.#subscriptions.push(subscription);
    this.#start();
  }

  add(delivery: Delivery): void {
    this.#queue.push(delivery);
    this.#queuedRows += delivery.records.length;
    this.#queuedBytes += delivery.bytes;
    if (this.#isFull()) this.hurry();
    this.#start();
  }

  /** Delivers the waiting records as soon as the current batch is stored. */
  hurry(): void {
    this.#gathering.abort();
  }

  /** Resolves when all records are stored, or when a group has rejected them again. */
  async close(): Promise<void> {
    this.#closing.abort();
    this.hurry();
    await this.#delivering;
  }

  #limits(): Subscription['limits'] {
    const limits = this.#subscriptions.map((subscription) => subscription.limits);
    return {
      rows: Math.min(...limits.map(({ rows }) => rows)),
      bytes: Math.min(...limits.map(({ bytes }) => bytes)),
    };
  }

  /** Returns whether the waiting records suffice for a batch. */
  #isFull(): boolean {
    const { rows, bytes } = this.#limits();
    return this.#queuedRows >= rows || this.#queuedBytes >= bytes;
  }

  #start(): void {
    if (this.#delivering !== undefined || this.#subscriptions.length === 0) return;
    // A batch may contain requests of several organisations, so it is delivered outside the context of the caller.
    this.#delivering = runWithoutTenant(() => this.#deliverAll());
  }

  async #deliverAll(): Promise<void> {
    // Requests that were appended together are part of the same batch.
    await new Promise((resolve) => setImmediate(resolve));
    while (this.#queue.length > 0) {
      const startedAtMs = performance.now();
      const batch = this.#takeBatch();
      if (!(await this.#deliver(batch))) break;
      for (const { onStored } of batch.completed) onStored();
      this.#options.onProgress();
      await this.#gather(performance.now() - startedAtMs);
    }
    this.#delivering = undefined;
  }

  /** Executes step 1. The first record is taken regardless of its size. */
  #takeBatch(): Batch {
    const limits = this.#limits();
    const records: LogRecord[] = [];
    let [bytes, completed] = [0, 0];
    while (completed < this.#queue.length) {
      const delivery = this.#queue[completed] as Delivery;
      const record = delivery.records[this.#taken] as LogRecord;
      const isFull = records.length >= limits.rows || bytes + record.value.length > limits.bytes;
      if (isFull && records.length > 0) break;
      records.push(record);
      bytes += record.value.length;
      this.#taken += 1;
      if (this.#taken < delivery.records.length) continue;
      completed += 1;
      this.#taken = 0;
    }
    this.#queuedRows -= records.length;
    this.#queuedBytes -= bytes;
    this.#gathering = new AbortController();
    return { records, completed: this.#queue.splice(0, completed) };
  }

  /** Executes step 2. @returns false if a group rejected the batch and the log is closing. */
  async #deliver({ records }: Batch): Promise<boolean> {
    const { partition, logger, onProgress } = this.#options;
    for (const { topic, handle } of this.#subscriptions) {
      for (;;) {
        try {
          await handle({ topic, partition, records });
          break;
        } catch (error) {
          logger.error({ err: error, topic: topic.name }, 'a batch could not be stored yet');
          this.#isRejected = true;
          onProgress();
          if (this.#closing.signal.aborted) return false;
          await pause(retryPauseMs, this.#closing.signal);
        }
      }
    }
    this.#isRejected = false;
    return true;
  }

  /** Executes step 4. */
  async #gather(batchMs: number): Promise<void> {
    if (this.#closing.signal.aborted || this.#isFull()) return;
    await pause(Math.min(maxGatheringFactor * batchMs, maxGatheringMs), this.#gathering.signal);
  }
}
