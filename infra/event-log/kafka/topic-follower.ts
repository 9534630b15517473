/**
 * Follows one topic outside its consumer groups: stores nothing and commits nothing.
 *
 * Invariant: the records of each partition are passed to `onRecords` in order from the starting offset, and the
 * progress is recorded only in the positions of this process.
 *
 *   1. Fetch the offset of each partition at `sinceMs` ago, and its log-end offset.
 *   2. A client joins a consumer group with a random name, because the library reads only through groups and Kafka
 *      keeps the member of a dead client for a while. The client gets all partitions and seeks each to its position.
 *      A partition that was added later is read from its beginning.
 *   3. Each fetch is passed on at once, so memory never holds more than one fetch.
 *   4. A client that crashed or stalled is fenced (`consumer.ts`), its group is deleted, and another client continues
 *      from the recorded positions.
 *   5. On close the client leaves its group, which is then deleted. Kafka expires the group of a process that was
 *      killed.
 */
import { randomBytes } from 'node:crypto';
import type { EachBatchPayload } from 'kafkajs';
import type { Logger } from '../../telemetry/logger.ts';
import { createDrainingError, type FollowOptions, type LogPosition, type TopicFollower } from '../event-log.ts';
import type { KafkaAddress, KafkaAdmin } from './client.ts';
import { ConsumerSupervisor } from './consumer.ts';
import { toKafkaRecord } from './record-buffer.ts';

export interface KafkaFollowerOptions extends FollowOptions {
  /** Name of the topic in Kafka. */
  readonly topicName: string;
  /** Prefix of the names of the follower's consumer groups. */
  readonly groupPrefix: string;
  readonly address: KafkaAddress;
  readonly admin: KafkaAdmin;
  readonly sessionTimeoutMs: number;
  /** Maximum time until a new partition is discovered. Default: 30 s. */
  readonly metadataMaxAgeMs?: number;
  readonly logger: Logger;
}

const maxFetchBytes = 8 * 1024 * 1024;
const defaultMetadataMaxAgeMs = 30_000;

/** Opens a follower. @throws KAFKA_UNAVAILABLE, ACCESS_DENIED_BY_STORE if the starting offsets cannot be fetched. */
export async function openKafkaFollower(options: KafkaFollowerOptions): Promise<KafkaFollower> {
  const { admin, topicName, sinceMs = 0 } = options;
  const [begins, ends] = await admin.call((client) =>
    Promise.all([
      client.fetchTopicOffsetsByTimestamp(topicName, Date.now() - sinceMs),
      client.fetchTopicOffsets(topicName),
    ]),
  );
  // The log-end offset was fetched concurrently and may be smaller than the starting offset.
  const from = Object.fromEntries(begins.map(({ partition, offset }) => [partition, Number(offset)]));
  return new KafkaFollower(
    options,
    from,
    Object.fromEntries(ends.map(({ partition, high }) => [partition, Number(high)])),
  );
}

export class KafkaFollower implements TopicFollower {
  readonly from: LogPosition;
  /**
   * Resolves when all events that were in the log when the follower was opened are delivered.
   *
   * @throws DRAINING if the follower is closed before that.
   */
  readonly caughtUp: Promise<void>;
  readonly #options: KafkaFollowerOptions;
  readonly #logger: Logger;
  readonly #positions: Map<number, number>;
  readonly #ends: LogPosition;
  readonly #supervisor: ConsumerSupervisor;
  #resolveCaughtUp: () => void = () => {};
  #rejectCaughtUp: () => void = () => {};

  /** Do not call the constructor directly; use {@link openKafkaFollower}. */
  constructor(options: KafkaFollowerOptions, from: LogPosition, ends: LogPosition) {
    this.#options = options;
    this.#logger = options.logger.child({ tail: options.topicName });
    this.from = from;
    this.#positions = new Map(Object.entries(from).map(([partition, offset]) => [Number(partition), offset]));
    this.#ends = ends;
    this.caughtUp = new Promise((resolve, reject) => {
      this.#resolveCaughtUp = resolve;
      this.#rejectCaughtUp = () => reject(createDrainingError());
    });
    this.caughtUp.catch(() => undefined);
    this.#supervisor = this.#join();
  }

  hasDelivered(position: LogPosition): boolean {
    return Object.entries(position).every(([partition, end]) => (this.#positions.get(Number(partition)) ?? 0) >= end);
  }

  close(): Promise<void> {
    this.#rejectCaughtUp();
    return this.#supervisor.close();
  }

  #join(): ConsumerSupervisor {
    const { topicName, groupPrefix, sessionTimeoutMs, metadataMaxAgeMs, address } = this.#options;
    return new ConsumerSupervisor({
      topicName,
      address,
      logger: this.#logger,
      consumer: () => ({
        groupId: `${groupPrefix}${randomBytes(9).toString('base64url')}`,
        sessionTimeout: sessionTimeoutMs,
        metadataMaxAge: metadataMaxAgeMs ?? defaultMetadataMaxAgeMs,
        minBytes: 1,
        maxWaitTimeInMs: 500,
        maxBytes: maxFetchBytes,
        maxBytesPerPartition: maxFetchBytes / 4,
      }),
      onAssigned: (consumer, partitions) => {
        for (const partition of partitions) {
          const position = this.#positions.get(partition);
          if (position !== undefined) consumer.seek({ topic: topicName, partition, offset: String(position) });
        }
        this.#checkCaughtUp();
      },
      onBatch: (payload) => this.#accept(payload),
      forget: (group) => this.#deleteGroup(group),
    });
  }

  /** Step 3 of the header comment: passes fetched records to `onRecords`. */
  #accept({ batch }: EachBatchPayload): void {
    if (this.#supervisor.ending.aborted) return;
    const { partition, messages } = batch;
    const position = this.#positions.get(partition) ?? 0;
    // A recreated topic starts again at offset 0.
    const fresh = Number(batch.highWatermark) < position ? 0 : position;
    const records = messages
      .filter(({ offset }) => Number(offset) >= fresh)
      .map((message) => toKafkaRecord(partition, message));
    this.#positions.set(partition, Math.max(fresh, Number(batch.lastOffset()) + 1));
    if (records.length > 0) {
      try {
        this.#options.onRecords(records);
      } catch (error) {
        this.#logger.error({ err: error }, 'a follower of the event log failed on records');
      }
    }
    this.#checkCaughtUp();
  }

  #checkCaughtUp(): void {
    if (this.hasDelivered(this.#ends)) this.#resolveCaughtUp();
  }

  async #deleteGroup(group: string): Promise<void> {
    try {
      await this.#options.admin.call((client) => client.deleteGroups([group]));
    } catch (error) {
      this.#logger.debug({ err: error, group }, "a follower's consumer group could not be deleted; Kafka expires it");
    }
  }
}
