/**
 * Membership of this process in a consumer group of one topic, over however many clients it takes.
 *
 * Invariant: one client at a time; what an earlier one still says is heard by nobody.
 *
 *   1. A client joins the group. Its loop hands on each batch at once; whoever takes it must not let the loop wait, since it also
 *      sends the heartbeats.
 *   2. A request that runs into its limit takes its connection with it. A client that crashed, or has given no sign of life for
 *      a while, is cut off with its sockets, and another one joins.
 *   3. At the end the client leaves the group.
 */
import type { Consumer, ConsumerConfig, EachBatchPayload } from 'kafkajs';
import type { Logger } from '../../telemetry/logger.ts';
import { kafkaFault } from './client-fault.ts';
import { type KafkaAddress, type KafkaClient, openKafkaClient } from './kafka-client.ts';
import { backoffMs, endsWithin, pause } from './pause.ts';

export interface MembershipOptions {
  readonly topicName: string;
  readonly address: KafkaAddress;
  readonly logger: Logger;
  /** Of the next client: its group, and how it fetches. */
  consumer(): ConsumerConfig;
  /** The group was balanced; what the client is told to seek now holds. */
  onAssigned(consumer: Consumer, partitions: readonly number[]): void;
  onBatch(payload: EachBatchPayload): void;
  /** The client has its partitions no longer: they are assigned anew, or it is over. May come several times. */
  onLost?(): void;
  /** For groups of one client: it leaves however it ended, and is cut off, before this is called. */
  forget?(group: string): Promise<void>;
}

const requestTimeoutMs = 15_000;
const heartbeatEveryMs = 2_000;
/** Longer than whatever a living client may wait for: a request, a join. */
const silentAfterMs = 75_000;
const joinTimeoutMs = 60_000;

export class Membership {
  readonly #options: MembershipOptions;
  readonly #stop = new AbortController();
  readonly #living: Promise<void>;
  #lastSignMs = 0;

  constructor(options: MembershipOptions) {
    this.#options = options;
    this.#living = this.#live();
  }

  /** Aborted once it is to end. */
  get ending(): AbortSignal {
    return this.#stop.signal;
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

  /** One client, from joining to its end. */
  async #session(): Promise<void> {
    const { address, logger, onLost, forget } = this.#options;
    const over = new AbortController();
    const client = openKafkaClient(address, requestTimeoutMs, logger);
    const config = this.#options.consumer();
    const consumer = this.#open(client, config, over);
    const stop = () => over.abort();
    this.#stop.signal.addEventListener('abort', stop);
    const watch = setInterval(() => {
      if (performance.now() - this.#lastSignMs < silentAfterMs) return;
      logger.warn('a Kafka consumer has gone silent: another one takes its place');
      over.abort();
    }, 1_000);
    try {
      this.#lastSignMs = performance.now();
      const running = this.#run(consumer, over.signal);
      running.catch(() => undefined);
      if (!(await Promise.race([endsWithin(running, joinTimeoutMs), aborted(over.signal)]))) over.abort();
      else if (!over.signal.aborted) await running;
      await aborted(over.signal);
    } catch (error) {
      logger.warn({ err: kafkaFault(error, address.kafkaBrokers) }, 'a Kafka consumer failed: tried again');
    } finally {
      over.abort();
      clearInterval(watch);
      this.#stop.signal.removeEventListener('abort', stop);
      onLost?.();
      if (this.#stop.signal.aborted || forget) await endsWithin(consumer.disconnect(), 5_000);
      client.fence();
      await forget?.(config.groupId);
    }
  }

  #open(client: KafkaClient, config: ConsumerConfig, over: AbortController): Consumer {
    const { topicName, onAssigned, onLost } = this.#options;
    const consumer = client.kafka.consumer({
      heartbeatInterval: heartbeatEveryMs,
      allowAutoTopicCreation: false,
      // A crashed client is replaced whole; it does not start itself again.
      retry: { initialRetryTime: 100, maxRetryTime: 1_000, retries: 30, restartOnFailure: async () => false },
      ...config,
    });
    const { events } = consumer;
    for (const event of [events.FETCH, events.HEARTBEAT, events.GROUP_JOIN, events.REBALANCING] as const) {
      consumer.on(event, () => {
        this.#lastSignMs = performance.now();
      });
    }
    // Fetches have a connection of their own and may go on, while commits and heartbeats would run into the limit time and again.
    consumer.on(events.REQUEST_TIMEOUT, ({ payload }) => {
      client.breakConnections(performance.now() - (Date.now() - payload.createdAt));
    });
    // What is set before the client knows its partitions is forgotten.
    consumer.on(events.GROUP_JOIN, ({ payload }) => {
      if (!over.signal.aborted) onAssigned(consumer, payload.memberAssignment[topicName] ?? []);
    });
    const lost = () => {
      if (!over.signal.aborted) onLost?.();
    };
    consumer.on(events.REBALANCING, lost);
    for (const event of [events.CRASH, events.STOP] as const) {
      consumer.on(event, () => {
        lost();
        over.abort();
      });
    }
    return consumer;
  }

  async #run(consumer: Consumer, over: AbortSignal): Promise<void> {
    const { topicName, onBatch } = this.#options;
    await consumer.connect();
    await consumer.subscribe({ topics: [topicName], fromBeginning: true });
    await consumer.run({
      autoCommit: false,
      eachBatchAutoResolve: true,
      eachBatch: async (payload) => {
        if (payload.batch.topic === topicName && !over.aborted) onBatch(payload);
      },
    });
  }
}

function aborted(signal: AbortSignal): Promise<true> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve(true);
    else signal.addEventListener('abort', () => resolve(true), { once: true });
  });
}
