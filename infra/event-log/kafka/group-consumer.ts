/**
 * One consumer group of one topic, as long as this process takes part in it.
 *
 * Invariant: at most one term a partition may commit, and it belongs to the generation that the client has now.
 *
 *   1. A client joins the group. What it fetches goes to the terms of its partitions at once, so that its loop, which also
 *      sends the heartbeats, never waits for an insert.
 *   2. The group is balanced anew: every term ends, and one begins for each partition that was assigned. It is asked from
 *      Kafka once for all of them where they begin.
 *   3. Where memory is spent, fetching pauses for partitions that have enough to go on with.
 *   4. A client that crashed or went silent is cut off (`membership.ts`); its terms end, and another client joins.
 *   5. At the end terms take no further batch, what is under way is finished and committed, then the client leaves the group.
 */
import { randomBytes } from 'node:crypto';
import type { Consumer, EachBatchPayload } from 'kafkajs';
import type { Logger } from '../../telemetry/logger.ts';
import type { Subscription } from '../event-log.ts';
import type { AdminLink } from './admin-link.ts';
import type { ByteBudget } from './byte-budget.ts';
import { findPositions } from './find-positions.ts';
import type { KafkaAddress } from './kafka-client.ts';
import { assignments } from './kafka-metrics.ts';
import { Membership } from './membership.ts';
import { PartitionTerm } from './partition-term.ts';
import { backoffMs, endsWithin, pause } from './pause.ts';
import { startingPoint } from './starting-point.ts';

export interface GroupOptions {
  readonly subscription: Subscription;
  /** As topic and group are called in Kafka. */
  readonly topicName: string;
  readonly group: string;
  readonly address: KafkaAddress;
  readonly admin: AdminLink;
  readonly budget: ByteBudget;
  /** How long small batches gather in Kafka. */
  readonly cutMs: number;
  /** Without a sign of life for so long the group goes on without this member. */
  readonly sessionTimeoutMs: number;
  readonly logger: Logger;
}

const leastRebalanceTimeoutMs = 30_000;
const mostFetchBytes = 16 * 1024 * 1024;

export class GroupConsumer {
  readonly #options: GroupOptions;
  readonly #logger: Logger;
  readonly #stop = new AbortController();
  readonly #terms = new Map<number, PartitionTerm>();
  /** Ends of what handles a partition, over terms. */
  readonly #handlers = new Map<number, Promise<void>>();
  readonly #paused = new Set<number>();
  #consumer: Consumer | undefined;
  #membership: Membership | undefined;
  readonly #stopBalancing: () => void;

  constructor(options: GroupOptions) {
    this.#options = options;
    this.#logger = options.logger.child({ group: options.group });
    this.#stopBalancing = options.budget.onFreed(() => this.#balanceFetching());
  }

  /** Offsets of the first events that are not done, by partition, where they are known. */
  get positions(): ReadonlyMap<number, number> {
    return new Map(
      [...this.#terms.values()].flatMap(({ partition, position, alive }) =>
        alive && position !== undefined ? [[partition, position] as const] : [],
      ),
    );
  }

  get topicName(): string {
    return this.#options.topicName;
  }

  start(): void {
    this.#membership ??= this.#join();
  }

  /** Finishes within `ms` what is under way, and leaves the group. */
  async close(ms: number): Promise<void> {
    for (const term of this.#terms.values()) term.close();
    await endsWithin(Promise.all(this.#handlers.values()), ms);
    this.#stop.abort();
    await this.#membership?.close();
    this.#stopBalancing();
  }

  #join(): Membership {
    const { address, group, cutMs, sessionTimeoutMs, subscription, topicName } = this.#options;
    return new Membership({
      topicName,
      address,
      logger: this.#logger,
      consumer: () => ({
        groupId: group,
        sessionTimeout: sessionTimeoutMs,
        rebalanceTimeout: Math.max(leastRebalanceTimeoutMs, sessionTimeoutMs),
        // Small batches gather at the broker: it answers when this much is there, or the time of a cut has passed.
        minBytes: Math.max(1, Math.min(Math.floor(subscription.limits.bytes / 4), mostFetchBytes / 4)),
        maxWaitTimeInMs: cutMs,
        maxBytes: mostFetchBytes,
        maxBytesPerPartition: Math.max(1_024, Math.min(subscription.limits.bytes, mostFetchBytes / 2)),
      }),
      onAssigned: (consumer, partitions) => {
        this.#consumer = consumer;
        this.#assign(partitions);
      },
      onBatch: (payload) => this.#accept(payload),
      onLost: () => this.#endTerms(),
    });
  }

  #accept({ batch, commitOffsetsIfNecessary }: EachBatchPayload): void {
    const term = this.#terms.get(batch.partition);
    if (term === undefined) return;
    term.accept(batch.messages, Number(batch.highWatermark), commitOffsetsIfNecessary);
    this.#balanceFetching();
  }

  /** Step 2. */
  #assign(partitions: readonly number[]): void {
    const { subscription, topicName, budget, address, group } = this.#options;
    this.#endTerms();
    for (const partition of partitions) {
      const term = new PartitionTerm({
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
      this.#terms.set(partition, term);
      this.#handlers.set(
        partition,
        term.run().catch((error: unknown) => {
          this.#logger.error({ err: error, partition }, 'the handling of a partition ended by itself');
        }),
      );
      assignments.inc({ topic: topicName });
    }
    this.#resume(partitions);
    this.#logger.info({ topic: topicName, group, partitions }, 'partitions were assigned');
    void this.#beginTerms([...this.#terms.values()]);
  }

  async #beginTerms(terms: readonly PartitionTerm[]): Promise<void> {
    const { admin, group, topicName } = this.#options;
    for (let attempt = 0; terms.some(({ alive }) => alive); attempt++) {
      try {
        const positions = await admin.ask((asked) => findPositions(asked, group, topicName));
        for (const term of terms) {
          const found = positions.get(term.partition);
          if (found !== undefined) term.begin(startingPoint(found, newSalt), found.high);
        }
        return;
      } catch (error) {
        this.#logger.warn({ err: error, attempt }, 'where to begin could not be found out: it is asked again');
        await pause(backoffMs(attempt, 200, 5_000), this.#stop.signal);
      }
    }
  }

  #endTerms(): void {
    for (const term of this.#terms.values()) term.end();
    this.#terms.clear();
  }

  /** Step 3. */
  #balanceFetching(): void {
    const { budget, subscription } = this.#options;
    for (const { partition, bufferedBytes, hasBatch } of this.#terms.values()) {
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
