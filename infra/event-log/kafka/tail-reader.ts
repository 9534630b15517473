/**
 * A reader of one topic beside its groups: it stores nothing and commits nothing.
 *
 * Invariant: of each partition the records are handed over in order from where the reader began, and only the position in this
 * process says how far that went.
 *
 *   1. Kafka is asked where each partition was `sinceMs` ago, and where it ends now.
 *   2. A client joins a group of its own under a name that nobody had, since the library reads in groups only and the seat of
 *      a client that died would be kept for a while. It is given all partitions, and seeks the position of each; one that was
 *      added since is read from its beginning.
 *   3. What it fetches is handed over at once, so that there is never more in memory than one fetch.
 *   4. A client that crashed, or has given no sign of life for a while, is cut off with its sockets, its group is deleted, and
 *      another client goes on at the positions.
 *   5. At the end the client leaves its group, which is deleted. That of a process that was killed, Kafka clears away.
 */
import { randomBytes } from 'node:crypto';
import type { Consumer, EachBatchPayload } from 'kafkajs';
import { fault } from '../../errors/runlake-error.ts';
import type { Logger } from '../../telemetry/logger.ts';
import type { LogPosition, Tail, TailOptions } from '../event-log.ts';
import type { AdminLink } from './admin-link.ts';
import { kafkaFault } from './client-fault.ts';
import { type KafkaAddress, type KafkaClient, openKafkaClient } from './kafka-client.ts';
import { backoffMs, endsWithin, pause } from './pause.ts';
import { recordOf } from './record-of.ts';

export interface TailReaderOptions extends TailOptions {
  /** As the topic is called in Kafka. */
  readonly topicName: string;
  /** What the names of its groups begin with. */
  readonly groupPrefix: string;
  readonly address: KafkaAddress;
  readonly admin: AdminLink;
  readonly sessionTimeoutMs: number;
  readonly logger: Logger;
}

const requestTimeoutMs = 15_000;
const heartbeatEveryMs = 2_000;
/** Longer than whatever a living client may wait for: a request, a join. */
const silentAfterMs = 75_000;
const joinTimeoutMs = 60_000;
const fetchBytes = 8 * 1024 * 1024;
/** How soon a partition that was added is found. */
const metadataMaxAgeMs = 30_000;

/** @throws KAFKA_UNAVAILABLE, ACCESS_DENIED_BY_STORE where Kafka cannot be asked where to begin. */
export async function openTailReader(options: TailReaderOptions): Promise<TailReader> {
  const { admin, topicName, sinceMs = 0 } = options;
  const [begins, ends] = await admin.ask((asked) =>
    Promise.all([
      asked.fetchTopicOffsetsByTimestamp(topicName, Date.now() - sinceMs),
      asked.fetchTopicOffsets(topicName),
    ]),
  );
  // The end was read beside the beginning, which may be behind it by now.
  const from = Object.fromEntries(begins.map(({ partition, offset }) => [partition, Number(offset)]));
  return new TailReader(
    options,
    from,
    Object.fromEntries(ends.map(({ partition, high }) => [partition, Number(high)])),
  );
}

export class TailReader implements Tail {
  readonly from: LogPosition;
  /** Resolves when everything is handed over that was in the log when the reader was opened. @throws DRAINING where it was closed before. */
  readonly caughtUp: Promise<void>;
  readonly #options: TailReaderOptions;
  readonly #logger: Logger;
  readonly #stop = new AbortController();
  readonly #positions: Map<number, number>;
  readonly #ends: LogPosition;
  readonly #living: Promise<void>;
  #lastSignMs = 0;
  #tellCaughtUp: () => void = () => {};

  /** For {@link openTailReader}. */
  constructor(options: TailReaderOptions, from: LogPosition, ends: LogPosition) {
    this.#options = options;
    this.#logger = options.logger.child({ tail: options.topicName });
    this.from = from;
    this.#positions = new Map(Object.entries(from).map(([partition, offset]) => [Number(partition), offset]));
    this.#ends = ends;
    this.caughtUp = new Promise((resolve, reject) => {
      this.#tellCaughtUp = resolve;
      this.#stop.signal.addEventListener('abort', () => reject(fault('DRAINING', {}, { retryAfterSeconds: 1 })));
    });
    this.caughtUp.catch(() => undefined);
    this.#living = this.#live();
  }

  passed(position: LogPosition): boolean {
    return Object.entries(position).every(([partition, end]) => (this.#positions.get(Number(partition)) ?? 0) >= end);
  }

  async close(): Promise<void> {
    this.#stop.abort();
    await this.#living;
  }

  async #live(): Promise<void> {
    for (let attempt = 0; !this.#stop.signal.aborted; attempt++) {
      const startedAtMs = performance.now();
      await this.#session();
      if (performance.now() - startedAtMs > silentAfterMs) attempt = 0;
      await pause(backoffMs(attempt, 200, 5_000), this.#stop.signal);
    }
  }

  /** Steps 2 and 4: one client, from joining to its end. */
  async #session(): Promise<void> {
    const { address, groupPrefix, logger } = this.#options;
    const over = new AbortController();
    const group = `${groupPrefix}${randomBytes(9).toString('base64url')}`;
    const client = openKafkaClient(address, requestTimeoutMs, logger);
    const consumer = this.#open(client, group, over);
    const stop = () => over.abort();
    this.#stop.signal.addEventListener('abort', stop);
    if (this.#stop.signal.aborted) stop();
    const watch = setInterval(() => {
      if (performance.now() - this.#lastSignMs < silentAfterMs) return;
      this.#logger.warn('the reader of a Kafka topic has gone silent: another one takes its place');
      over.abort();
    }, 1_000);
    try {
      this.#lastSignMs = performance.now();
      const running = this.#run(consumer);
      running.catch(() => undefined);
      if (!(await Promise.race([endsWithin(running, joinTimeoutMs), aborted(over.signal)]))) over.abort();
      else if (!over.signal.aborted) await running;
      await aborted(over.signal);
    } catch (error) {
      this.#logger.warn({ err: kafkaFault(error, address.kafkaBrokers) }, 'a Kafka topic cannot be read: tried again');
    } finally {
      clearInterval(watch);
      this.#stop.signal.removeEventListener('abort', stop);
      await endsWithin(consumer.disconnect(), 5_000);
      client.fence();
      await this.#forget(group);
    }
  }

  #open(client: KafkaClient, group: string, over: AbortController): Consumer {
    const { topicName, sessionTimeoutMs } = this.#options;
    const consumer = client.kafka.consumer({
      groupId: group,
      sessionTimeout: sessionTimeoutMs,
      heartbeatInterval: heartbeatEveryMs,
      metadataMaxAge: metadataMaxAgeMs,
      minBytes: 1,
      maxWaitTimeInMs: 500,
      maxBytes: fetchBytes,
      maxBytesPerPartition: fetchBytes / 4,
      allowAutoTopicCreation: false,
      // A crashed client is replaced whole; it does not start itself again.
      retry: { initialRetryTime: 100, maxRetryTime: 1_000, retries: 30, restartOnFailure: async () => false },
    });
    const { events } = consumer;
    for (const event of [events.FETCH, events.HEARTBEAT, events.GROUP_JOIN, events.REBALANCING] as const) {
      consumer.on(event, () => {
        this.#lastSignMs = performance.now();
      });
    }
    consumer.on(events.REQUEST_TIMEOUT, ({ payload }) => {
      client.breakConnections(performance.now() - (Date.now() - payload.createdAt));
    });
    // What is set before the client knows its partitions is forgotten.
    consumer.on(events.GROUP_JOIN, ({ payload: { memberAssignment } }) => {
      if (over.signal.aborted) return;
      for (const partition of memberAssignment[topicName] ?? []) {
        const position = this.#positions.get(partition);
        if (position !== undefined) consumer.seek({ topic: topicName, partition, offset: String(position) });
      }
      this.#lookWhetherCaughtUp();
    });
    for (const event of [events.CRASH, events.STOP] as const) consumer.on(event, () => over.abort());
    return consumer;
  }

  async #run(consumer: Consumer): Promise<void> {
    await consumer.connect();
    await consumer.subscribe({ topics: [this.#options.topicName], fromBeginning: true });
    await consumer.run({
      autoCommit: false,
      eachBatchAutoResolve: true,
      eachBatch: async (payload) => this.#accept(payload),
    });
  }

  /** Step 3. */
  #accept({ batch }: EachBatchPayload): void {
    if (this.#stop.signal.aborted) return;
    const { partition, messages } = batch;
    const position = this.#positions.get(partition) ?? 0;
    // A topic that was made anew begins anew.
    const fresh = Number(batch.highWatermark) < position ? 0 : position;
    const records = messages
      .filter(({ offset }) => Number(offset) >= fresh)
      .map((message) => recordOf(partition, message));
    this.#positions.set(partition, Math.max(fresh, Number(batch.lastOffset()) + 1));
    if (records.length > 0) {
      try {
        this.#options.onRecords(records);
      } catch (error) {
        this.#logger.error({ err: error }, 'a tail of the event log failed on records');
      }
    }
    this.#lookWhetherCaughtUp();
  }

  #lookWhetherCaughtUp(): void {
    if (this.passed(this.#ends)) this.#tellCaughtUp();
  }

  async #forget(group: string): Promise<void> {
    try {
      await this.#options.admin.ask((asked) => asked.deleteGroups([group]));
    } catch (error) {
      this.#logger.debug({ err: error, group }, 'the group of a reader is left for Kafka to clear away');
    }
  }
}

function aborted(signal: AbortSignal): Promise<true> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve(true);
    else signal.addEventListener('abort', () => resolve(true), { once: true });
  });
}
