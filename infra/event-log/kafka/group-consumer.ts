/**
 * Consumes one topic in one consumer group, for as long as this process is a member.
 *
 * Invariant: at most one partition consumer per partition may commit, and it belongs to the client's current generation.
 *
 *   1. A client joins the group. Fetched records go to the consumers of their partitions at once, so that the client's
 *      loop, which also sends the heartbeats, never waits for an insert.
 *   2. On each rebalance every partition consumer ends, and a new one starts for each assigned partition. One admin
 *      request fetches the starting positions of all of them.
 *   3. When the byte budget is spent, fetching pauses for partitions that have a complete batch in memory.
 *   4. A client that crashed or stalled is fenced (`membership.ts`); its partition consumers end, and another client joins.
 *   5. On close, the partition consumers take no further batch, finish and commit the batch in progress, and the client
 *      leaves the group.
 */
import { randomBytes } from 'node:crypto';
import type { Consumer, EachBatchPayload } from 'kafkajs';
import type { Logger } from '../../telemetry/logger.ts';
import { backoffMs, pause } from '../../timeouts/backoff.ts';
import { settlesBeforeTimeout } from '../../timeouts/with-timeout.ts';
import type { Subscription } from '../event-log.ts';
import type { KafkaAddress, KafkaAdmin } from './client.ts';
import { findPositions } from './find-positions.ts';
import { assignments } from './kafka-metrics.ts';
import { ConsumerSupervisor } from './membership.ts';
import { PartitionConsumer } from './partition-consumer.ts';
import type { ByteBudget } from './record-buffer.ts';
import { startingPoint } from './starting-point.ts';

export interface GroupOptions {
  readonly subscription: Subscription;
  /** Names of topic and group in Kafka. */
  readonly topicName: string;
  readonly group: string;
  readonly address: KafkaAddress;
  readonly admin: KafkaAdmin;
  readonly budget: ByteBudget;
  /** Time for which the broker gathers small batches before it answers a fetch. */
  readonly insertBatchMs: number;
  /** The group removes this member after this time without a heartbeat. */
  readonly sessionTimeoutMs: number;
  readonly logger: Logger;
}

const minRebalanceTimeoutMs = 30_000;
const maxFetchBytes = 16 * 1024 * 1024;

export class GroupConsumer {
  readonly #options: GroupOptions;
  readonly #logger: Logger;
  readonly #stop = new AbortController();
  readonly #partitions = new Map<number, PartitionConsumer>();
  /** The running `run()` of each partition's consumers; a new assignment waits for the previous one. */
  readonly #handlers = new Map<number, Promise<void>>();
  readonly #paused = new Set<number>();
  #consumer: Consumer | undefined;
  #supervisor: ConsumerSupervisor | undefined;
  readonly #stopBalancing: () => void;

  constructor(options: GroupOptions) {
    this.#options = options;
    this.#logger = options.logger.child({ group: options.group });
    this.#stopBalancing = options.budget.onFreed(() => this.#balanceFetching());
  }

  /** First unconsumed offset of each assigned partition; partitions without a known starting position are missing. */
  get positions(): ReadonlyMap<number, number> {
    return new Map(
      [...this.#partitions.values()].flatMap(({ partition, position, alive }) =>
        alive && position !== undefined ? [[partition, position] as const] : [],
      ),
    );
  }

  get topicName(): string {
    return this.#options.topicName;
  }

  start(): void {
    this.#supervisor ??= this.#join();
  }

  /** Finishes the batches in progress within `ms` and leaves the group. */
  async close(ms: number): Promise<void> {
    for (const partitionConsumer of this.#partitions.values()) partitionConsumer.close();
    await settlesBeforeTimeout(Promise.all(this.#handlers.values()), ms);
    this.#stop.abort();
    await this.#supervisor?.close();
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
        rebalanceTimeout: Math.max(minRebalanceTimeoutMs, sessionTimeoutMs),
        // The broker gathers small batches: it answers when it has this many bytes or `insertBatchMs` has passed.
        minBytes: Math.max(1, Math.min(Math.floor(subscription.limits.bytes / 4), maxFetchBytes / 4)),
        maxWaitTimeInMs: insertBatchMs,
        maxBytes: maxFetchBytes,
        maxBytesPerPartition: Math.max(1_024, Math.min(subscription.limits.bytes, maxFetchBytes / 2)),
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
    partitionConsumer.accept(batch.messages, Number(batch.highWatermark), commitOffsetsIfNecessary);
    this.#balanceFetching();
  }

  /** Step 2. */
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
        newSalt,
        seek: (offset) => this.#consumer?.seek({ topic: topicName, partition, offset: String(offset) }),
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
    for (let attempt = 0; consumers.some(({ alive }) => alive); attempt++) {
      try {
        const positions = await admin.call((client) => findPositions(client, group, topicName));
        for (const consumer of consumers) {
          const found = positions.get(consumer.partition);
          if (found !== undefined) consumer.begin(startingPoint(found, newSalt), found.high);
        }
        return;
      } catch (error) {
        this.#logger.warn({ err: error, attempt }, 'starting positions could not be fetched: retrying');
        await pause(backoffMs(attempt, 200, 5_000), this.#stop.signal);
      }
    }
  }

  #endAssignment(): void {
    for (const consumer of this.#partitions.values()) consumer.end();
    this.#partitions.clear();
  }

  /** Step 3. */
  #balanceFetching(): void {
    const { budget, subscription } = this.#options;
    for (const { partition, bufferedBytes, hasBatch } of this.#partitions.values()) {
      const enough = hasBatch && (budget.spent || bufferedBytes >= subscription.limits.bytes * 2);
      if (enough && !this.#paused.has(partition)) {
        this.#paused.add(partition);
        this.#consumer?.pause([{ topic: this.#options.topicName, partitions: [partition] }]);
      } else if (this.#paused.has(partition) && (bufferedBytes === 0 || (!budget.spent && !enough))) {
        this.#resume([partition]);
      }
    }
  }

  #resume(partitions: readonly number[]): void {
    for (const partition of partitions) this.#paused.delete(partition);
    if (partitions.length === 0) return;
    this.#consumer?.resume([{ topic: this.#options.topicName, partitions: [...partitions] }]);
  }
}

const newSalt = () => randomBytes(9).toString('base64url');
