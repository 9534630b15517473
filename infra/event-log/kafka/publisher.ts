/**
 * Publishes the events of requests to Kafka.
 *
 * Invariant: a request is answered after all its events are in all in-sync replicas; memory is bounded; no request
 * waits longer than its time limit, which is `timeoutMs` for each 16 MiB that it has begun.
 *
 *   1. Divide the messages of a request by partition and add them to the partition queues.
 *   2. Each partition queue appends what is waiting as one batch, bounded in bytes, then the next (see `appender.ts`).
 *      While a batch is in flight requests accumulate, so batches grow with the load.
 *   3. Answer the request when all its messages are appended.
 *   4. After the time limit, answer 503. Messages that are still queued are dropped; a batch in flight is retried,
 *      because the next batch must not overtake it. If the client repeats the request, the repeat merges with it.
 *   5. A partition queue whose batch has been in flight for longer than the limit refuses new requests at once.
 */
import { type Message, Partitioners } from 'kafkajs';
import { runlakeError } from '../../errors/runlake-error.ts';
import { settlesBeforeTimeout } from '../../timeouts/with-timeout.ts';
import type { LogMessage } from '../event-log.ts';
import type { Appender } from './appender.ts';
import { bytesOf } from './message-bytes.ts';
import { PartitionQueue } from './partition-queue.ts';

export interface PublisherOptions {
  readonly appender: Pick<Appender, 'append'>;
  /** Number of partitions of each topic, by topic name. */
  readonly partitions: ReadonlyMap<string, number>;
  readonly maxPendingBytes: number;
  /** Maximum bytes of a batch; a larger event is sent alone. */
  readonly batchBytes: number;
  /** Time limit of a request for each {@link timedBytes} that it has begun. */
  readonly timeoutMs: number;
}

const retryAfterSeconds = 2;
/** Large requests get more time; otherwise the largest would fail, and so would their retries, unless Kafka is fast. */
const timedBytes = 16 * 1024 * 1024;

export class Publisher {
  readonly #options: PublisherOptions;
  readonly #queues = new Map<string, PartitionQueue[]>();
  readonly #partitioner = Partitioners.DefaultPartitioner();
  #pendingBytes = 0;
  #closed = false;

  constructor(options: PublisherOptions) {
    this.#options = options;
    for (const [topic, partitions] of options.partitions) {
      const queues = Array.from(
        { length: partitions },
        (_, partition) =>
          new PartitionQueue({ topic, partition, ...options, released: (bytes) => this.#release(bytes) }),
      );
      this.#queues.set(topic, queues);
    }
  }

  get pendingBytes(): number {
    return this.#pendingBytes;
  }

  /** @throws OVERLOADED, EVENT_LOG_UNAVAILABLE, DRAINING */
  async publish(topic: string, messages: readonly LogMessage[]): Promise<void> {
    if (messages.length === 0) return;
    if (this.#closed) throw runlakeError('DRAINING', {}, { retryAfterSeconds: 1 });
    const shares = this.#divide(topic, messages.map(messageOf));
    const bytes = shares.reduce((sum, share) => sum + share.bytes, 0);
    if (this.#pendingBytes > 0 && this.#pendingBytes + bytes > this.#options.maxPendingBytes) {
      throw runlakeError(
        'OVERLOADED',
        { what: 'events for the log, a quarter of RUNLAKE_MEMORY_BYTES' },
        { retryAfterSeconds: 1 },
      );
    }
    await this.#append(shares, bytes);
  }

  /** Like `publish`, but accepts messages even above the byte limit and while closing. For dead-letter records. */
  async publishAlways(topic: string, messages: readonly Message[]): Promise<void> {
    const shares = this.#divide(topic, messages);
    await this.#append(
      shares,
      shares.reduce((sum, share) => sum + share.bytes, 0),
    );
  }

  /** Rejects new events and waits at most `ms` for the accepted ones. @returns whether all of them were appended. */
  async close(ms: number): Promise<boolean> {
    this.#closed = true;
    return settlesBeforeTimeout(Promise.all([...this.#queues.values()].flat().map((queue) => queue.idle())), ms);
  }

  async #append(shares: readonly Share[], bytes: number): Promise<void> {
    const { timeoutMs } = this.#options;
    if (shares.some(({ queue }) => queue.isOverdue(timeoutMs))) throw unavailable();
    this.#pendingBytes += bytes;
    const entries = shares.map(({ queue, messages, bytes: own }) => queue.add(messages, own));
    const timer = setTimeout(
      () => {
        for (const entry of entries) entry.cancel(unavailable());
      },
      timeoutMs * Math.ceil(Math.max(1, bytes) / timedBytes),
    );
    try {
      const outcomes = await Promise.allSettled(entries.map((entry) => entry.appended));
      const failed = outcomes.find((outcome) => outcome.status === 'rejected');
      if (failed) throw failed.reason;
    } finally {
      clearTimeout(timer);
    }
  }

  #divide(topic: string, messages: readonly Message[]): Share[] {
    const queues = this.#queues.get(topic) ?? [];
    const partitionMetadata = queues.map((_, partitionId) => ({ partitionId, leader: 0 })) as never;
    const shares = new Map<PartitionQueue, { queue: PartitionQueue; messages: Message[]; bytes: number }>();
    for (const message of messages) {
      const queue = queues[
        queues.length === 1 ? 0 : this.#partitioner({ topic, partitionMetadata, message })
      ] as PartitionQueue;
      const share = shares.get(queue) ?? { queue, messages: [], bytes: 0 };
      shares.set(queue, share);
      share.messages.push(message);
      share.bytes += bytesOf(message);
    }
    return [...shares.values()];
  }

  #release(bytes: number): void {
    this.#pendingBytes -= bytes;
  }
}

interface Share {
  readonly queue: PartitionQueue;
  readonly messages: readonly Message[];
  readonly bytes: number;
}

function messageOf({ key, value, headers }: LogMessage): Message {
  return { key, value, ...(headers ? { headers: { ...headers } } : {}) };
}

function unavailable() {
  return runlakeError('EVENT_LOG_UNAVAILABLE', {}, { retryAfterSeconds });
}
