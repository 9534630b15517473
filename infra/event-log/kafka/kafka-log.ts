import type { Topic } from '../../../schemas/topics.ts';
import type { Config } from '../../config/settings.ts';
import type { Logger } from '../../telemetry/logger.ts';
import type { HealthCheck } from '../../telemetry/telemetry-server.ts';
import { retryTransient } from '../../timeouts/backoff.ts';
import {
  createDrainingError,
  type DeadLetterStep,
  type EventLog,
  type FollowOptions,
  getSinkGroup,
  type LogMessage,
  type LogPosition,
  type LogRecord,
  type Subscription,
  type TopicFollower,
} from '../event-log.ts';
import { consumerLag, observePublish, pendingBytes } from '../event-log-metrics.ts';
import { type KafkaAddress, KafkaAdmin } from './client.ts';
import { GroupConsumer } from './consumer.ts';
import { buildDeadLetterMessage } from './dead-letter-queue.ts';
import { createKafkaHealthChecks } from './health.ts';
import { findPositions, hasConsumedUpTo } from './partition-consumer.ts';
import { IdempotentProducer } from './producer.ts';
import { Publisher } from './publisher.ts';
import { ByteBudget } from './record-buffer.ts';
import { SchemaRegistry } from './schema-registry.ts';
import { type KafkaFollower, openKafkaFollower } from './topic-follower.ts';
import { buildTopicNames, ensureTopics, listRequiredTopics, type TopicNames } from './topics.ts';

export type KafkaConfig = KafkaAddress &
  Pick<
    Config,
    | 'schemaRegistryUrl'
    | 'kafkaTopicPrefix'
    | 'kafkaPartitions'
    | 'kafkaReplication'
    | 'kafkaSessionTimeoutMs'
    | 'maxRunBytes'
    | 'maxPendingBytes'
    | 'maxFetchedBytes'
    | 'publishTimeoutMs'
    | 'insertBatchMs'
    | 'drainTimeoutMs'
  >;

export interface KafkaLogOptions {
  readonly config: KafkaConfig;
  readonly topics: readonly Topic[];
  readonly logger: Logger;
}

/**
 * Minimum pause before opening the log is tried again. If all attempts fail, the role closes everything that is open and
 * waits for the servers (`api/command-line/start-role.ts`).
 */
const minRetryPauseMs = 200;
/**
 * Maximum bytes of a batch: large enough to justify a request, small enough for the request to be short. A larger event
 * is sent alone.
 */
const batchBytes = 1024 * 1024;
/** Time after which a missing partition counts as gone. */
const goneAfterMs = 5_000;
/** Part of the drain timeout that is reserved for leaving the groups and closing the connections. */
const leaveTimeoutMs = 5_000;

/**
 * Opens the log on Kafka: creates missing topics and registers their schemas.
 *
 * @throws KAFKA_UNAVAILABLE or REGISTRY_UNAVAILABLE if a server cannot be reached within ten seconds,
 *   ACCESS_DENIED_BY_STORE, TOPIC_UNUSABLE, SCHEMA_REFUSED.
 */
export async function openKafkaLog(options: KafkaLogOptions): Promise<KafkaLog> {
  const { config, topics, logger } = options;
  const names = buildTopicNames(config.kafkaTopicPrefix);
  const admin = new KafkaAdmin(config, logger);
  const registry = new SchemaRegistry(config);
  try {
    const required = listRequiredTopics(topics, names);
    const ensure = () => admin.call((client) => ensureTopics(client, required, config, logger));
    const partitions = await retryTransient(ensure, minRetryPauseMs);
    const ids = new Map<Topic, number>();
    for (const topic of topics) {
      const register = () => registry.register(names.schemaSubject(topic), topic.schema);
      ids.set(topic, await retryTransient(register, minRetryPauseMs));
    }
    return new KafkaLog(options, { names, admin, registry, partitions, ids });
  } catch (error) {
    await admin.close();
    throw error;
  }
}

interface OpenedKafka {
  readonly names: TopicNames;
  readonly admin: KafkaAdmin;
  readonly registry: SchemaRegistry;
  readonly partitions: ReadonlyMap<string, number>;
  readonly ids: ReadonlyMap<Topic, number>;
}

/** The event log on Kafka; `publisher.ts` and `partition-consumer.ts` describe how it works. */
export class KafkaLog implements EventLog {
  readonly isExclusive = false;
  readonly #options: KafkaLogOptions;
  readonly #opened: OpenedKafka;
  readonly #producer: IdempotentProducer;
  readonly #publisher: Publisher;
  readonly #budget: ByteBudget;
  readonly #consumers: { readonly topic: Topic; readonly consumer: GroupConsumer }[] = [];
  readonly #followers = new Set<KafkaFollower>();
  /** When partitions were first found missing, by topic and number. */
  readonly #missingSinceMs = new Map<string, number>();
  readonly #hideMetrics: readonly (() => void)[];
  #closing: Promise<void> | undefined;

  /** Do not call the constructor directly; use {@link openKafkaLog}. */
  constructor(options: KafkaLogOptions, opened: OpenedKafka) {
    const { config, logger } = options;
    const { publishTimeoutMs: timeoutMs, maxPendingBytes } = config;
    this.#options = options;
    this.#opened = opened;
    // Half of the publish timeout, so that a request on a dead connection gets a second attempt.
    this.#producer = new IdempotentProducer(config, Math.min(Math.max(timeoutMs / 2, 500), 15_000), logger);
    this.#publisher = new Publisher({
      producer: this.#producer,
      partitions: opened.partitions,
      maxPendingBytes,
      batchBytes: Math.min(batchBytes, config.maxRunBytes),
      timeoutMs,
    });
    this.#budget = new ByteBudget(config.maxFetchedBytes);
    this.#hideMetrics = [
      pendingBytes.setReader(() => this.#publisher.pendingBytes, 0),
      consumerLag.setReader(() => this.#lag()),
    ];
  }

  get pendingBytes(): number {
    return this.#publisher.pendingBytes;
  }

  schemaId(topic: Topic): number {
    return this.#opened.ids.get(topic) as number;
  }

  /** @throws REGISTRY_UNAVAILABLE if the id is not cached and the registry cannot be reached. */
  getSchema(schemaId: number): Promise<string | undefined> {
    return this.#opened.registry.getSchemaText(schemaId);
  }

  /** Calls `onOffsetsAssigned` after the append, because in Kafka events get their offset when they become durable. */
  async publish(topic: Topic, messages: readonly LogMessage[], onOffsetsAssigned?: () => void): Promise<void> {
    const name = this.#opened.names.of(topic);
    if (messages.length > 0) {
      await observePublish(topic, messages, (observed) => this.#publisher.publish(name, observed));
    }
    onOffsetsAssigned?.();
  }

  /** @throws KAFKA_UNAVAILABLE, ACCESS_DENIED_BY_STORE, DRAINING */
  async follow(topic: Topic, options: FollowOptions): Promise<TopicFollower> {
    const { names, admin } = this.#opened;
    const { config, logger } = this.#options;
    if (this.#closing) throw createDrainingError();
    const follower = await openKafkaFollower({
      ...options,
      topicName: names.of(topic),
      groupPrefix: names.group('tail-'),
      address: config,
      admin,
      sessionTimeoutMs: config.kafkaSessionTimeoutMs,
      logger,
    });
    this.#followers.add(follower);
    if (this.#closing) await follower.close();
    await follower.caughtUp;
    return {
      from: follower.from,
      hasDelivered: (position) => follower.hasDelivered(position),
      close: async () => {
        this.#followers.delete(follower);
        await follower.close();
      },
    };
  }

  async subscribe(subscription: Subscription): Promise<void> {
    const { names, admin } = this.#opened;
    const { config, logger } = this.#options;
    const consumer = new GroupConsumer({
      subscription,
      topicName: names.of(subscription.topic),
      group: names.group(subscription.group),
      address: config,
      admin,
      budget: this.#budget,
      insertBatchMs: config.insertBatchMs,
      sessionTimeoutMs: config.kafkaSessionTimeoutMs,
      logger,
    });
    this.#consumers.push({ topic: subscription.topic, consumer });
  }

  /**
   * Appends a dead-letter record. Kafka cannot take part in the caller's transaction, so the record is durable before
   * the caller commits.
   */
  async deadLetter(topic: Topic, record: LogRecord, reason: string, step: DeadLetterStep): Promise<void> {
    const { names } = this.#opened;
    const message = buildDeadLetterMessage(names.of(topic), record, reason, step);
    await this.#publisher.publishUnconditionally(names.deadLetterTopic(topic), [message]);
  }

  async whenStored(): Promise<void> {}

  async position(topic: Topic): Promise<LogPosition> {
    const { admin, names } = this.#opened;
    const topicOffsets = await admin.call((client) => client.fetchTopicOffsets(names.of(topic)));
    return Object.fromEntries(topicOffsets.map(({ partition, high }) => [partition, Number(high)]));
  }

  async isStored(topic: Topic, position: LogPosition): Promise<boolean> {
    const { admin, names } = this.#opened;
    const name = names.of(topic);
    return admin.call(async (client) => {
      const found = await findPositions(client, names.group(getSinkGroup(topic)), name);
      const late = Object.entries(position)
        .map(([partition, end]) => ({ partition: Number(partition), end }))
        .filter(({ partition, end }) => !hasConsumedUpTo(found.get(partition), end));
      if (late.length === 0) return true;
      if (late.some(({ partition }) => found.has(partition))) return false;
      // Either the topic was recreated with fewer partitions, or the client does not know added ones: it caches them.
      const [current] = (await client.fetchTopicMetadata({ topics: [name] })).topics;
      const existing = new Set(current?.partitions.map(({ partitionId }) => partitionId));
      const gone = late.filter(({ partition }) => this.#isGone(`${name} ${partition}`, existing.has(partition)));
      return gone.length === late.length;
    });
  }

  /** Returns whether a partition has been missing for some time. A broker may not know one that was just added. */
  #isGone(partition: string, exists: boolean): boolean {
    const missingSinceMs = this.#missingSinceMs.get(partition) ?? performance.now();
    if (exists) this.#missingSinceMs.delete(partition);
    else this.#missingSinceMs.set(partition, missingSinceMs);
    return !exists && performance.now() - missingSinceMs >= goneAfterMs;
  }

  async check(): Promise<void> {
    if (this.#closing) throw createDrainingError();
    await Promise.all(this.healthChecks().map((part) => part.check()));
  }

  /** Returns separate health checks for Kafka and for the schema registry. */
  healthChecks(): HealthCheck[] {
    return createKafkaHealthChecks(this.#opened.admin, this.#opened.registry);
  }

  /**
   * Rejects new events, finishes the accepted events and the batches in progress within the drain timeout, and leaves
   * the groups.
   */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    const { drainTimeoutMs } = this.#options.config;
    const drainWorkMs = Math.max(drainTimeoutMs - leaveTimeoutMs, drainTimeoutMs / 2);
    const [published] = await Promise.all([
      this.#publisher.close(drainWorkMs),
      ...[...this.#followers].map((follower) => follower.close()),
      ...this.#consumers.map(({ consumer }) => consumer.close(drainWorkMs)),
    ]);
    if (!published)
      this.#options.logger.warn('drain timeout: some events were not appended; their publishers get an error');
    await this.#producer.close();
    await this.#opened.admin.close();
    for (const hide of this.#hideMetrics) hide();
  }

  async #lag() {
    const { admin, names } = this.#opened;
    const samples: { labels: { topic: string; partition: number }; value: number }[] = [];
    for (const { topic, consumer } of this.#consumers) {
      const { positions } = consumer;
      if (positions.size === 0) continue;
      const ends = await admin.call((client) => client.fetchTopicOffsets(names.of(topic)));
      for (const { partition, high } of ends) {
        const position = positions.get(partition);
        if (position === undefined) continue;
        samples.push({ labels: { topic: topic.name, partition }, value: Math.max(0, Number(high) - position) });
      }
    }
    return samples;
  }
}
