/**
 * Keeps this process a member of a consumer group of one topic, and replaces the Kafka client when it fails.
 *
 * Invariant: one client at a time; events of an earlier client are ignored.
 *
 *   1. A client joins the group. Its loop passes each batch to `onBatch`, which must return at once, because the same
 *      loop sends the heartbeats.
 *   2. A request that times out closes its connection. A client that crashed, or shows no activity for a while, is
 *      fenced with its sockets, and another client joins.
 *   3. On close the client leaves the group.
 */
import type { Consumer, ConsumerConfig, EachBatchPayload } from 'kafkajs';
import type { Logger } from '../../telemetry/logger.ts';
import { backoffMs, pause } from '../../timeouts/backoff.ts';
import { settlesBeforeTimeout } from '../../timeouts/with-timeout.ts';
import { type KafkaAddress, type KafkaClient, kafkaError, openKafkaClient } from './client.ts';

export interface ConsumerSupervisorOptions {
  readonly topicName: string;
  readonly address: KafkaAddress;
  readonly logger: Logger;
  /** Returns group and fetch options of the next client. */
  consumer(): ConsumerConfig;
  /** Called after a rebalance; a `seek` during this call takes effect. */
  onAssigned(consumer: Consumer, partitions: readonly number[]): void;
  onBatch(payload: EachBatchPayload): void;
  /** Called when the client loses its partitions, by a rebalance or because it ended. May be called several times. */
  onLost?(): void;
  /** For groups with a single client: called after the client has left the group and is fenced, however it ended. */
  forget?(group: string): Promise<void>;
}

const requestTimeoutMs = 15_000;
const heartbeatEveryMs = 2_000;
/** Longer than any request or join of a working client. */
const silentAfterMs = 75_000;
const joinTimeoutMs = 60_000;

export class ConsumerSupervisor {
  readonly #options: ConsumerSupervisorOptions;
  readonly #stop = new AbortController();
  readonly #running: Promise<void>;
  #lastActivityMs = 0;

  constructor(options: ConsumerSupervisorOptions) {
    this.#options = options;
    this.#running = this.#superviseClients();
  }

  /** Aborted when {@link ConsumerSupervisor.close} is called. */
  get ending(): AbortSignal {
    return this.#stop.signal;
  }

  async close(): Promise<void> {
    this.#stop.abort();
    await this.#running;
  }

  async #superviseClients(): Promise<void> {
    for (let attempt = 0; !this.#stop.signal.aborted; attempt++) {
      const startedAtMs = performance.now();
      await this.#runClient();
      if (performance.now() - startedAtMs > silentAfterMs) attempt = 0;
      await pause(backoffMs(attempt, 200, 5_000), this.#stop.signal);
    }
  }

  /** Runs one client from joining to its end. */
  async #runClient(): Promise<void> {
    const { address, logger, onLost, forget } = this.#options;
    const over = new AbortController();
    const client = openKafkaClient(address, requestTimeoutMs, logger);
    const config = this.#options.consumer();
    const consumer = this.#open(client, config, over);
    const stop = () => over.abort();
    this.#stop.signal.addEventListener('abort', stop);
    const watch = setInterval(() => {
      if (performance.now() - this.#lastActivityMs < silentAfterMs) return;
      logger.warn('a Kafka consumer shows no activity: replacing it');
      over.abort();
    }, 1_000);
    try {
      this.#lastActivityMs = performance.now();
      const running = this.#consume(consumer, over.signal);
      running.catch(() => undefined);
      if (!(await Promise.race([settlesBeforeTimeout(running, joinTimeoutMs), aborted(over.signal)]))) over.abort();
      else if (!over.signal.aborted) await running;
      await aborted(over.signal);
    } catch (error) {
      logger.warn({ err: kafkaError(error, address.kafkaBrokers) }, 'a Kafka consumer failed: replacing it');
    } finally {
      over.abort();
      clearInterval(watch);
      this.#stop.signal.removeEventListener('abort', stop);
      onLost?.();
      if (this.#stop.signal.aborted || forget) await settlesBeforeTimeout(consumer.disconnect(), 5_000);
      client.fence();
      await forget?.(config.groupId);
    }
  }

  #open(client: KafkaClient, config: ConsumerConfig, over: AbortController): Consumer {
    const { topicName, onAssigned, onLost } = this.#options;
    const consumer = client.kafka.consumer({
      heartbeatInterval: heartbeatEveryMs,
      allowAutoTopicCreation: false,
      // The supervisor replaces a crashed client; the library must not restart it.
      retry: { initialRetryTime: 100, maxRetryTime: 1_000, retries: 30, restartOnFailure: async () => false },
      ...config,
    });
    const { events } = consumer;
    for (const event of [events.FETCH, events.HEARTBEAT, events.GROUP_JOIN, events.REBALANCING] as const) {
      consumer.on(event, () => {
        this.#lastActivityMs = performance.now();
      });
    }
    // Fetches use their own connection and may continue while commits and heartbeats time out again and again on a dead one.
    consumer.on(events.REQUEST_TIMEOUT, ({ payload }) => {
      client.breakConnections(performance.now() - (Date.now() - payload.createdAt));
    });
    // The library drops a seek that comes before it has its partitions, so wait for the join.
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

  async #consume(consumer: Consumer, over: AbortSignal): Promise<void> {
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
