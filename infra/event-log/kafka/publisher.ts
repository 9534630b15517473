/**
 * Hands the events of requests to Kafka.
 *
 * Invariant: a request is answered after all its events are in all in-sync replicas; what is held in memory is bounded; nobody
 * waits longer than the time limit, which a large request has several times: once for each 16 MiB.
 *
 *   1. A request's messages are divided by partition and join the queues of their lanes.
 *   2. A lane appends what waits at that moment as one batch, bounded in bytes, and only then the next (see `appender.ts`).
 *      While it is busy requests gather, so the more there are, the larger the batches.
 *   3. All of a request's messages appended: it is answered.
 *   4. Past the time limit it gets a 503. What of it still waits in a queue is forgotten; what is under way goes on, because
 *      the next batch may not pass it. A repeat of the request merges with it.
 *   5. A lane whose batch has been under way for longer than the limit refuses new requests at once.
 */
import { type Message, Partitioners } from 'kafkajs';
import { fault } from '../../errors/runlake-error.ts';
import type { LogMessage } from '../event-log.ts';
import type { Appender } from './appender.ts';
import { Lane } from './lane.ts';
import { bytesOf } from './message-bytes.ts';
import { endsWithin } from './pause.ts';

export interface PublisherOptions {
  readonly appender: Pick<Appender, 'append'>;
  /** Of each topic that is published to, by name. */
  readonly partitions: ReadonlyMap<string, number>;
  readonly maxPendingBytes: number;
  /** Bytes at which a batch is full; one larger event goes alone. */
  readonly batchBytes: number;
  /** What a request has for each {@link timedBytes} that it has begun. */
  readonly timeoutMs: number;
}

const retryAfterSeconds = 2;
/** Else the largest bodies would get through only where Kafka is fast, and their repeats no better. */
const timedBytes = 16 * 1024 * 1024;

export class Publisher {
  readonly #options: PublisherOptions;
  readonly #lanes = new Map<string, Lane[]>();
  readonly #partitioner = Partitioners.DefaultPartitioner();
  #pendingBytes = 0;
  #closed = false;

  constructor(options: PublisherOptions) {
    this.#options = options;
    for (const [topic, partitions] of options.partitions) {
      const lanes = Array.from(
        { length: partitions },
        (_, partition) => new Lane({ topic, partition, ...options, released: (bytes) => this.#release(bytes) }),
      );
      this.#lanes.set(topic, lanes);
    }
  }

  get pendingBytes(): number {
    return this.#pendingBytes;
  }

  /** @throws OVERLOADED, EVENT_LOG_UNAVAILABLE, DRAINING */
  async publish(topic: string, messages: readonly LogMessage[]): Promise<void> {
    if (messages.length === 0) return;
    if (this.#closed) throw fault('DRAINING', {}, { retryAfterSeconds: 1 });
    const shares = this.#divide(topic, messages.map(messageOf));
    const bytes = shares.reduce((sum, share) => sum + share.bytes, 0);
    if (this.#pendingBytes > 0 && this.#pendingBytes + bytes > this.#options.maxPendingBytes) {
      throw fault('OVERLOADED', { what: 'RUNLAKE_MAX_PENDING_BYTES' }, { retryAfterSeconds: 1 });
    }
    await this.#append(shares, bytes);
  }

  /** As `publish`, for what has to go out while others are refused. */
  async publishAlways(topic: string, messages: readonly Message[]): Promise<void> {
    const shares = this.#divide(topic, messages);
    await this.#append(
      shares,
      shares.reduce((sum, share) => sum + share.bytes, 0),
    );
  }

  /** Takes nothing more and waits at most `ms` for what was taken. @returns whether all of it got through. */
  async close(ms: number): Promise<boolean> {
    this.#closed = true;
    return endsWithin(Promise.all([...this.#lanes.values()].flat().map((lane) => lane.idle())), ms);
  }

  async #append(shares: readonly Share[], bytes: number): Promise<void> {
    const { timeoutMs } = this.#options;
    if (shares.some(({ lane }) => lane.isOverdue(timeoutMs))) throw unavailable();
    this.#pendingBytes += bytes;
    const entries = shares.map(({ lane, messages, bytes: own }) => lane.add(messages, own));
    const timer = setTimeout(
      () => {
        for (const entry of entries) entry.giveUp(unavailable());
      },
      timeoutMs * Math.ceil(Math.max(1, bytes) / timedBytes),
    );
    try {
      const ends = await Promise.allSettled(entries.map((entry) => entry.appended));
      const failed = ends.find((end) => end.status === 'rejected');
      if (failed) throw failed.reason;
    } finally {
      clearTimeout(timer);
    }
  }

  #divide(topic: string, messages: readonly Message[]): Share[] {
    const lanes = this.#lanes.get(topic) ?? [];
    const partitionMetadata = lanes.map((_, partitionId) => ({ partitionId, leader: 0 })) as never;
    const shares = new Map<Lane, { lane: Lane; messages: Message[]; bytes: number }>();
    for (const message of messages) {
      const lane = lanes[lanes.length === 1 ? 0 : this.#partitioner({ topic, partitionMetadata, message })] as Lane;
      const share = shares.get(lane) ?? { lane, messages: [], bytes: 0 };
      shares.set(lane, share);
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
  readonly lane: Lane;
  readonly messages: readonly Message[];
  readonly bytes: number;
}

function messageOf({ key, value, headers }: LogMessage): Message {
  return { key, value, ...(headers ? { headers: { ...headers } } : {}) };
}

function unavailable() {
  return fault('EVENT_LOG_UNAVAILABLE', {}, { retryAfterSeconds });
}
