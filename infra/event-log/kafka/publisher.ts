/**
 * Publishes the events of requests to Kafka.
 *
 * Invariant: `publish` resolves only after all events of the request are in all in-sync replicas; memory is bounded; no
 * request waits longer than its time limit, which is `timeoutMs` for each started 16 MiB of its size.
 *
 *   1. Divide the messages of a request by partition and add them to the partition queues.
 *   2. Each partition queue appends the waiting messages in batches of bounded size, one batch at a time (see
 *      `producer.ts`). While a batch is in flight, requests accumulate, so batches grow with the load.
 *   3. When all messages of the request are appended, `publish` resolves.
 *   4. After the time limit, `publish` rejects, and the client gets 503. Messages that are still queued are dropped; a
 *      batch in flight is retried, because the next batch must not overtake it. If the client repeats the request,
 *      the repeated events merge with those in the batch.
 *   5. A partition queue whose batch has been in flight for longer than the limit refuses new requests at once.
 */
import type { Message } from 'kafkajs';
import { runlakeError } from '../../errors/runlake-error.ts';
import { pause } from '../../timeouts/backoff.ts';
import { settlesBeforeTimeout } from '../../timeouts/with-timeout.ts';
import {
  computePublishTimeoutMs,
  createDrainingError,
  createOverloadedError,
  isWithinPendingLimit,
  type LogMessage,
} from '../event-log.ts';
import type { IdempotentProducer } from './producer.ts';

export interface PublisherOptions {
  readonly producer: Pick<IdempotentProducer, 'append'>;
  /** Number of partitions of each topic, by topic name. */
  readonly partitions: ReadonlyMap<string, number>;
  readonly maxPendingBytes: number;
  /** Maximum bytes of a batch; a larger event is sent alone. */
  readonly batchBytes: number;
  /** Time limit of a small request; see {@link computePublishTimeoutMs}. */
  readonly timeoutMs: number;
}

const retryAfterSeconds = 2;

export class Publisher {
  readonly #options: PublisherOptions;
  readonly #queues = new Map<string, PartitionQueue[]>();
  #pendingBytes = 0;
  #closed = false;

  constructor(options: PublisherOptions) {
    this.#options = options;
    const onReleased = (bytes: number) => {
      this.#pendingBytes -= bytes;
    };
    for (const [topic, partitions] of options.partitions) {
      const queues = Array.from({ length: partitions }, (_, partition) => ({
        topic,
        partition,
        ...options,
        released: onReleased,
      }));
      this.#queues.set(
        topic,
        queues.map((each) => new PartitionQueue(each)),
      );
    }
  }

  get pendingBytes(): number {
    return this.#pendingBytes;
  }

  /** @throws OVERLOADED, EVENT_LOG_UNAVAILABLE, DRAINING */
  async publish(topic: string, messages: readonly LogMessage[]): Promise<void> {
    if (messages.length === 0) return;
    if (this.#closed) throw createDrainingError();
    const shares = this.#divide(topic, messages.map(toKafkaMessage));
    if (!isWithinPendingLimit(this.#pendingBytes, sumShareBytes(shares), this.#options.maxPendingBytes))
      throw createOverloadedError();
    await this.#append(shares);
  }

  /** Like `publish`, but accepts messages even above the byte limit and while closing. For dead-letter records. */
  async publishUnconditionally(topic: string, messages: readonly Message[]): Promise<void> {
    await this.#append(this.#divide(topic, messages));
  }

  /** Rejects new events and waits at most `ms` for the accepted ones. @returns whether all of them were appended. */
  async close(ms: number): Promise<boolean> {
    this.#closed = true;
    return settlesBeforeTimeout(Promise.all([...this.#queues.values()].flat().map((queue) => queue.idle())), ms);
  }

  async #append(shares: readonly Share[]): Promise<void> {
    const { timeoutMs } = this.#options;
    const bytes = sumShareBytes(shares);
    if (shares.some(({ queue }) => queue.isOverdue(timeoutMs))) throw createUnavailableError();
    this.#pendingBytes += bytes;
    const entries = shares.map(({ queue, messages, bytes: own }) => queue.add(messages, own));
    const timer = setTimeout(
      () => {
        for (const entry of entries) entry.cancel(createUnavailableError());
      },
      computePublishTimeoutMs(timeoutMs, bytes),
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
    const shares = new Map<PartitionQueue, { queue: PartitionQueue; messages: Message[]; bytes: number }>();
    for (const message of messages) {
      const queue = queues[choosePartition(message.key ?? '', queues.length)] as PartitionQueue;
      const share = shares.get(queue) ?? { queue, messages: [], bytes: 0 };
      shares.set(queue, share);
      share.messages.push(message);
      share.bytes += estimateBytes(message);
    }
    return [...shares.values()];
  }
}

const hashSeed = 0x9747b28c;
const hashFactor = 0x5bd1e995;

/**
 * Returns the partition that Kafka's own clients choose for a key: its murmur2 hash, without the sign, modulo the number
 * of partitions. The partitioner of kafkajs calculates the same with objects of 64 bits, which took 9 % of the CPU time
 * of accepting runs. Records without a key, which only other producers write, share a partition. Source: `Utils.murmur2`
 * of Apache Kafka.
 */
export function choosePartition(key: string | Buffer, partitions: number): number {
  const data = typeof key === 'string' ? Buffer.from(key) : key;
  const wordsEnd = data.length & ~3;
  let hash = hashSeed ^ data.length;
  for (let at = 0; at < wordsEnd; at += 4) {
    let word = Math.imul(data.readInt32LE(at), hashFactor);
    word = Math.imul(word ^ (word >>> 24), hashFactor);
    hash = Math.imul(hash, hashFactor) ^ word;
  }
  for (let at = data.length - 1; at >= wordsEnd; at--) hash ^= (data[at] as number) << (8 * (at - wordsEnd));
  if (wordsEnd < data.length) hash = Math.imul(hash, hashFactor);
  hash = Math.imul(hash ^ (hash >>> 13), hashFactor);
  return ((hash ^ (hash >>> 15)) & 0x7fffffff) % partitions;
}

interface Share {
  readonly queue: PartitionQueue;
  readonly messages: readonly Message[];
  readonly bytes: number;
}

function toKafkaMessage({ key, value, headers }: LogMessage): Message {
  return { key, value, headers: { ...headers } };
}

function sumShareBytes(shares: readonly Share[]): number {
  return shares.reduce((sum, share) => sum + share.bytes, 0);
}

function createUnavailableError() {
  return runlakeError('EVENT_LOG_UNAVAILABLE', {}, { retryAfterSeconds });
}

interface PartitionQueueOptions extends Pick<PublisherOptions, 'producer' | 'batchBytes'> {
  readonly topic: string;
  readonly partition: number;
  /** Called exactly once for each entry, with its bytes, when the queue no longer holds the entry. */
  released(bytes: number): void;
}

/** A request's messages for one partition. */
interface Entry {
  readonly appended: Promise<void>;
  /** Rejects the request now and drops its messages that are not in a batch yet. */
  cancel(reason: unknown): void;
}

interface WaitingEntry {
  readonly messages: readonly Message[];
  readonly bytes: number;
  /**
   * Whether the queue was idle when the entry arrived. If so, the batch in flight has not waited longer than the entry.
   */
  readonly queueWasIdle: boolean;
  /** Number of messages that are in a batch already. */
  batchedCount: number;
  inFlight: boolean;
  cancelled: boolean;
  readonly done: () => void;
  readonly failed: (reason: unknown) => void;
}

/** Minimum time between batches under load, so that batches are large enough to justify a request. */
const minIntervalMs = 4;

/** Queue of one partition: appends one batch at a time, in the order of arrival. */
class PartitionQueue {
  readonly #options: PartitionQueueOptions;
  readonly #queue: WaitingEntry[] = [];
  #running: Promise<void> | undefined;
  #batchSince: number | undefined;
  #overdue = false;

  constructor(options: PartitionQueueOptions) {
    this.#options = options;
  }

  /**
   * Returns true if the current batch has been in flight for `timeoutMs`. The timer that rejects its first request may
   * fire slightly before this clock reaches the limit. `#overdue` covers this interval: otherwise a request that
   * arrives in it would wait for the full limit again.
   */
  isOverdue(timeoutMs: number): boolean {
    if (this.#batchSince === undefined) return false;
    return this.#overdue || performance.now() - this.#batchSince > timeoutMs;
  }

  async idle(): Promise<void> {
    while (this.#running) await this.#running;
  }

  add(messages: readonly Message[], bytes: number): Entry {
    let waiting: WaitingEntry | undefined;
    const appended = new Promise<void>((done, failed) => {
      const queueWasIdle = this.#running === undefined;
      waiting = { messages, bytes, queueWasIdle, batchedCount: 0, inFlight: false, cancelled: false, done, failed };
      this.#queue.push(waiting);
    });
    this.#running ??= this.#run();
    return { appended, cancel: (reason) => this.#cancel(waiting as WaitingEntry, reason) };
  }

  #cancel(waiting: WaitingEntry, reason: unknown): void {
    if (waiting.cancelled) return;
    waiting.cancelled = true;
    waiting.failed(reason);
    if (waiting.inFlight) {
      this.#overdue ||= waiting.queueWasIdle;
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
      const remainingMs = minIntervalMs - (performance.now() - startedAtMs);
      if (remainingMs > 0) await pause(remainingMs);
    }
    this.#running = undefined;
  }

  async #appendNext(): Promise<void> {
    const { topic, partition, producer } = this.#options;
    const { messages, parts } = this.#take();
    this.#batchSince = performance.now();
    try {
      await producer.append({ topic, partition, messages });
      for (const waiting of parts) this.#finish(waiting);
    } catch (error) {
      for (const waiting of parts) this.#finish(waiting, error);
    } finally {
      this.#batchSince = undefined;
      this.#overdue = false;
    }
  }

  /** Takes the next messages up to `batchBytes`. A request that does not fit entirely continues in the next batch. */
  #take(): { messages: Message[]; parts: WaitingEntry[] } {
    const messages: Message[] = [];
    const parts: WaitingEntry[] = [];
    let bytes = 0;
    for (const waiting of this.#queue) {
      while (waiting.batchedCount < waiting.messages.length) {
        const message = waiting.messages[waiting.batchedCount] as Message;
        const own = estimateBytes(message);
        if (messages.length > 0 && bytes + own > this.#options.batchBytes) return { messages, parts };
        if (!waiting.inFlight) parts.push(waiting);
        waiting.inFlight = true;
        waiting.batchedCount++;
        messages.push(message);
        bytes += own;
      }
    }
    return { messages, parts };
  }

  #finish(waiting: WaitingEntry, error?: unknown): void {
    waiting.inFlight = false;
    if (error === undefined && !waiting.cancelled && waiting.batchedCount < waiting.messages.length) return;
    this.#queue.splice(this.#queue.indexOf(waiting), 1);
    this.#options.released(waiting.bytes);
    if (error === undefined) waiting.done();
    else waiting.failed(error);
  }
}

/** Approximate overhead of a message in memory and on the wire, in addition to value, key and headers. */
const overheadBytes = 100;

/** Returns the approximate size of a message. The estimate is rather too high than too low. */
function estimateBytes({ key, value, headers }: Message): number {
  let bytes = overheadBytes + (key?.length ?? 0) + (value?.length ?? 0);
  for (const [name, text] of Object.entries(headers ?? {})) bytes += name.length + (text?.length ?? 0) * 2 + 10;
  return bytes;
}
