/**
 * Consumes a topic as a member of a consumer group. {@link ConsumerSupervisor} replaces the Kafka client when it fails.
 * {@link GroupConsumer} passes the records of a client to partition consumers.
 *
 * Invariant: there is only one client at a time, and events of earlier clients are ignored. For each partition, at most
 * one partition consumer may commit, and it belongs to the current generation of the client.
 *
 *   1. A client joins the group. Its loop also sends the heartbeats. Therefore fetched records are passed to the
 *      partition consumers immediately, and the loop never waits for an insert.
 *   2. On each rebalance, all partition consumers end, and a new partition consumer starts for each assigned
 *      partition. One admin request fetches the start positions of all of them.
 *   3. Fetching pauses for a partition that has its next batch in memory. When the byte budget is exhausted, fetching
 *      pauses for every partition that has any records in memory, including records that are being stored, and records
 *      that wait for the start position.
 *   4. A request that times out closes its connection. A client that has crashed, or that shows no activity for a
 *      while, is fenced, which destroys its sockets. Its partition consumers end, and another client joins.
 *   5. On close, the partition consumers take no further batch, and finish and commit the batch in progress. Then the
 *      client leaves the group.
 */
import type { Consumer, ConsumerConfig, EachBatchPayload } from 'kafkajs';
import type { Logger } from '../../telemetry/logger.ts';
import { counter } from '../../telemetry/metrics.ts';
import { computeBackoffMs, pause } from '../../timeouts/backoff.ts';
import { settlesBeforeTimeout } from '../../timeouts/with-timeout.ts';
import type { Subscription } from '../event-log.ts';
import { type KafkaAddress, type KafkaAdmin, type KafkaClient, openKafkaClient, toKafkaError } from './client.ts';
import { chooseStartingPoint, findPositions, PartitionConsumer } from './partition-consumer.ts';
import type { ByteBudget } from './record-buffer.ts';

const assignments = counter('runlake_event_log_assignments_total', 'Partitions assigned to this process, by topic.', [
  'topic',
]);

interface ConsumerSupervisorOptions {
  readonly topicName: string;
  readonly address: KafkaAddress;
  readonly logger: Logger;
  /** Returns the group and fetch options for the next client. */
  consumer(): ConsumerConfig;
  /** Called after a rebalance; a `seek` during this call takes effect. */
  onAssigned(consumer: Consumer, partitions: readonly number[]): void;
  /** Called with each fetched batch. Must return immediately. */
  onBatch(payload: EachBatchPayload): void;
  /**
   * Called when the client loses its partitions, because of a rebalance or because the client stopped. May be called
   * several times.
   */
  onLost?(): void;
  /**
   * For groups with a single client. Called after the client has left the group and has been fenced, whether it failed
   * or was stopped.
   */
  forget?(group: string): Promise<void>;
}

const requestTimeoutMs = 15_000;
const heartbeatIntervalMs = 2_000;
/**
 * A client that shows no activity for this long is replaced. The timeout is longer than any request or group join of a
 * healthy client.
 */
const stallTimeoutMs = 75_000;
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
      if (performance.now() - startedAtMs > stallTimeoutMs) attempt = 0;
      await pause(computeBackoffMs(attempt, 200, 5_000), this.#stop.signal);
    }
  }

  /** Runs one client, from joining the group until it is closed. */
  async #runClient(): Promise<void> {
    const { address, logger, onLost, forget } = this.#options;
    const over = new AbortController();
    const client = openKafkaClient(address, requestTimeoutMs, logger);
    const config = this.#options.consumer();
    const consumer = this.#open(client, config, over);
    const stop = () => over.abort();
    this.#stop.signal.addEventListener('abort', stop);
    const watch = setInterval(() => {
      if (performance.now() - this.#lastActivityMs < stallTimeoutMs) return;
      logger.warn('a Kafka consumer shows no activity: replacing it');
      over.abort();
    }, 1_000);
    try {
      this.#lastActivityMs = performance.now();
      const running = this.#consume(consumer, over.signal);
      running.catch(() => undefined);
      if (!(await Promise.race([settlesBeforeTimeout(running, joinTimeoutMs), waitForAbort(over.signal)])))
        over.abort();
      else if (!over.signal.aborted) await running;
      await waitForAbort(over.signal);
    } catch (error) {
      logger.warn({ err: toKafkaError(error, address.kafkaBrokers) }, 'a Kafka consumer failed: replacing it');
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
      heartbeatInterval: heartbeatIntervalMs,
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
    // Fetches use a separate connection. They may continue while all commits and heartbeats time out on a dead
    // connection.
    consumer.on(events.REQUEST_TIMEOUT, ({ payload }) => {
      client.breakConnections(performance.now() - (Date.now() - payload.createdAt));
    });
    // Wait for the join, because the library ignores a seek that precedes the partition assignment.
    consumer.on(events.GROUP_JOIN, ({ payload }) => {
      if (!over.signal.aborted) onAssigned(consumer, payload.memberAssignment[topicName] ?? []);
    });
    const reportLoss = () => {
      if (!over.signal.aborted) onLost?.();
    };
    consumer.on(events.REBALANCING, reportLoss);
    for (const event of [events.CRASH, events.STOP] as const) {
      consumer.on(event, () => {
        reportLoss();
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

function waitForAbort(signal: AbortSignal): Promise<true> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve(true);
    else signal.addEventListener('abort', () => resolve(true), { once: true });
  });
}

interface GroupConsumerOptions {
  readonly subscription: Subscription;
  /** Names of the topic and the group in Kafka. */
  readonly topicName: string;
  readonly group: string;
  readonly address: KafkaAddress;
  readonly admin: KafkaAdmin;
  readonly budget: ByteBudget;
  /** How long the broker waits for more records before it responds to a fetch with a small batch. */
  readonly insertBatchMs: number;
  /** The broker removes this member from the group after this time without a heartbeat. */
  readonly sessionTimeoutMs: number;
  readonly logger: Logger;
}

/** Maximum time until the client discovers partitions that were added to the topic. */
const metadataMaxAgeMs = 30_000;
const minRebalanceTimeoutMs = 30_000;
/**
 * While one batch of a partition is being stored, one fetch gets the next batch. The peak memory of `bench/sink`
 * depends on this size: 320 to 340 MiB with 4 MiB, 350 to 370 MiB with 6 MiB, 380 to 420 MiB with 8 MiB, for the same
 * CPU time per run.
 */
const maxPartitionBytes = 5 * 1024 * 1024;
const maxFetchBytes = 2 * maxPartitionBytes;

/** Consumes a topic as a member of a group, from its construction until {@link GroupConsumer.close}. */
export class GroupConsumer {
  readonly #options: GroupConsumerOptions;
  readonly #logger: Logger;
  readonly #stop = new AbortController();
  readonly #partitions = new Map<number, PartitionConsumer>();
  /** The pending `run()` of the latest consumer of each partition; the next consumer of the partition waits for it. */
  readonly #handlers = new Map<number, Promise<void>>();
  readonly #paused = new Set<number>();
  #consumer: Consumer | undefined;
  readonly #supervisor: ConsumerSupervisor;
  readonly #stopBalancing: () => void;

  constructor(options: GroupConsumerOptions) {
    this.#options = options;
    this.#logger = options.logger.child({ group: options.group });
    this.#stopBalancing = options.budget.onFreed(() => this.#balanceFetching());
    this.#supervisor = this.#join();
  }

  /**
   * First unconsumed offset of each assigned partition; partitions whose starting position is not known yet are
   * omitted.
   */
  get positions(): ReadonlyMap<number, number> {
    return new Map(
      [...this.#partitions.values()].flatMap(({ partition, position, alive }) =>
        alive && position !== undefined ? [[partition, position] as const] : [],
      ),
    );
  }

  /** Waits at most `ms` for the batches in progress, then leaves the group. */
  async close(ms: number): Promise<void> {
    for (const partitionConsumer of this.#partitions.values()) partitionConsumer.close();
    await settlesBeforeTimeout(Promise.all(this.#handlers.values()), ms);
    this.#stop.abort();
    await this.#supervisor.close();
    this.#stopBalancing();
  }

  #join(): ConsumerSupervisor {
    const { address, group, insertBatchMs, sessionTimeoutMs, subscription, topicName } = this.#options;
    return new ConsumerSupervisor({
      topicName,
      address,
      logger: this.#logger,
      consumer: () => ({
        groupId: group,
        sessionTimeout: sessionTimeoutMs,
        metadataMaxAge: metadataMaxAgeMs,
        rebalanceTimeout: Math.max(minRebalanceTimeoutMs, sessionTimeoutMs),
        // The broker responds to a fetch when it has this many bytes, or after `insertBatchMs`.
        minBytes: Math.max(1, Math.min(Math.floor(subscription.limits.bytes / 4), maxFetchBytes / 4)),
        maxWaitTimeInMs: insertBatchMs,
        maxBytes: maxFetchBytes,
        maxBytesPerPartition: Math.max(1_024, Math.min(subscription.limits.bytes, maxPartitionBytes)),
      }),
      onAssigned: (consumer, partitions) => {
        this.#consumer = consumer;
        this.#assign(partitions);
      },
      onBatch: (payload) => this.#accept(payload),
      onLost: () => this.#endAssignment(),
    });
  }

  #accept({ batch, commitOffsetsIfNecessary }: EachBatchPayload): void {
    const partitionConsumer = this.#partitions.get(batch.partition);
    if (partitionConsumer === undefined) return;
    partitionConsumer.accept(batch.messages, commitOffsetsIfNecessary);
    this.#balanceFetching();
  }

  /** Step 2 of the header comment: starts a partition consumer for each assigned partition. */
  #assign(partitions: readonly number[]): void {
    const { subscription, topicName, budget, address, group } = this.#options;
    this.#endAssignment();
    for (const partition of partitions) {
      const consumer = new PartitionConsumer({
        subscription,
        topicName,
        partition,
        predecessor: this.#handlers.get(partition) ?? Promise.resolve(),
        budget,
        logger: this.#logger,
        brokers: address.kafkaBrokers,
        seek: (offset) => this.#consumer?.seek({ topic: topicName, partition, offset: String(offset) }),
        onBatchTaken: () => this.#balanceFetching(),
      });
      this.#partitions.set(partition, consumer);
      this.#handlers.set(
        partition,
        consumer.run().catch((error: unknown) => {
          this.#logger.error({ err: error, partition }, 'a partition consumer failed');
        }),
      );
      assignments.inc({ topic: topicName });
    }
    this.#resume(partitions);
    this.#logger.info({ topic: topicName, group, partitions }, 'partitions assigned');
    void this.#beginAssignment([...this.#partitions.values()]);
  }

  async #beginAssignment(consumers: readonly PartitionConsumer[]): Promise<void> {
    const { admin, group, topicName } = this.#options;
    let waiting = consumers;
    for (let attempt = 0; waiting.some(({ alive }) => alive); attempt++) {
      try {
        const positions = await admin.call((client) => findPositions(client, group, topicName));
        for (const consumer of waiting) {
          const found = positions.get(consumer.partition);
          if (found !== undefined) consumer.begin(chooseStartingPoint(found));
        }
        // The broker that answered may not know partitions that were just added.
        waiting = waiting.filter(({ partition }) => !positions.has(partition));
        if (waiting.length === 0) return;
        const partitions = waiting.map(({ partition }) => partition);
        this.#logger.warn({ partitions, attempt }, 'partitions have no starting position yet: retrying');
      } catch (error) {
        this.#logger.warn({ err: error, attempt }, 'starting positions could not be fetched: retrying');
      }
      await pause(computeBackoffMs(attempt, 200, 5_000), this.#stop.signal);
    }
  }

  #endAssignment(): void {
    for (const consumer of this.#partitions.values()) consumer.end();
    this.#partitions.clear();
  }

  /** Step 3 of the header comment: pauses the partitions that have enough records in memory, and resumes the others. */
  #balanceFetching(): void {
    const { budget, subscription } = this.#options;
    const enoughBytes = Math.min(subscription.limits.bytes, maxPartitionBytes);
    for (const { partition, bufferedBytes, isHandling } of this.#partitions.values()) {
      const hasEnough = budget.spent ? bufferedBytes > 0 || isHandling : bufferedBytes >= enoughBytes;
      if (hasEnough === this.#paused.has(partition)) continue;
      if (!hasEnough) this.#resume([partition]);
      else {
        this.#paused.add(partition);
        this.#consumer?.pause([{ topic: this.#options.topicName, partitions: [partition] }]);
      }
    }
  }

  #resume(partitions: readonly number[]): void {
    for (const partition of partitions) this.#paused.delete(partition);
    if (partitions.length === 0) return;
    this.#consumer?.resume([{ topic: this.#options.topicName, partitions: [...partitions] }]);
  }
}
