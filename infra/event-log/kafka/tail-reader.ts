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
 *   4. A client that crashed or went silent is cut off (`membership.ts`), its group is deleted, and another client goes on at the
 *      positions.
 *   5. At the end the client leaves its group, which is deleted. That of a process that was killed, Kafka clears away.
 */
import { randomBytes } from 'node:crypto';
import type { EachBatchPayload } from 'kafkajs';
import { fault } from '../../errors/runlake-error.ts';
import type { Logger } from '../../telemetry/logger.ts';
import type { LogPosition, Tail, TailOptions } from '../event-log.ts';
import type { AdminLink } from './admin-link.ts';
import type { KafkaAddress } from './kafka-client.ts';
import { Membership } from './membership.ts';
import { recordOf } from './record-of.ts';

export interface TailReaderOptions extends TailOptions {
  /** As the topic is called in Kafka. */
  readonly topicName: string;
  /** What the names of its groups begin with. */
  readonly groupPrefix: string;
  readonly address: KafkaAddress;
  readonly admin: AdminLink;
  readonly sessionTimeoutMs: number;
  /** How soon a partition that was added is found. Default: 30 s. */
  readonly metadataMaxAgeMs?: number;
  readonly logger: Logger;
}

const fetchBytes = 8 * 1024 * 1024;
const usualMetadataMaxAgeMs = 30_000;

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
  readonly #positions: Map<number, number>;
  readonly #ends: LogPosition;
  readonly #membership: Membership;
  #tellCaughtUp: () => void = () => {};
  #giveUp: () => void = () => {};

  /** For {@link openTailReader}. */
  constructor(options: TailReaderOptions, from: LogPosition, ends: LogPosition) {
    this.#options = options;
    this.#logger = options.logger.child({ tail: options.topicName });
    this.from = from;
    this.#positions = new Map(Object.entries(from).map(([partition, offset]) => [Number(partition), offset]));
    this.#ends = ends;
    this.caughtUp = new Promise((resolve, reject) => {
      this.#tellCaughtUp = resolve;
      this.#giveUp = () => reject(fault('DRAINING', {}, { retryAfterSeconds: 1 }));
    });
    this.caughtUp.catch(() => undefined);
    this.#membership = this.#join();
  }

  passed(position: LogPosition): boolean {
    return Object.entries(position).every(([partition, end]) => (this.#positions.get(Number(partition)) ?? 0) >= end);
  }

  close(): Promise<void> {
    this.#giveUp();
    return this.#membership.close();
  }

  #join(): Membership {
    const { topicName, groupPrefix, sessionTimeoutMs, metadataMaxAgeMs, address } = this.#options;
    return new Membership({
      topicName,
      address,
      logger: this.#logger,
      consumer: () => ({
        groupId: `${groupPrefix}${randomBytes(9).toString('base64url')}`,
        sessionTimeout: sessionTimeoutMs,
        metadataMaxAge: metadataMaxAgeMs ?? usualMetadataMaxAgeMs,
        minBytes: 1,
        maxWaitTimeInMs: 500,
        maxBytes: fetchBytes,
        maxBytesPerPartition: fetchBytes / 4,
      }),
      onAssigned: (consumer, partitions) => {
        for (const partition of partitions) {
          const position = this.#positions.get(partition);
          if (position !== undefined) consumer.seek({ topic: topicName, partition, offset: String(position) });
        }
        this.#lookWhetherCaughtUp();
      },
      onBatch: (payload) => this.#accept(payload),
      forget: (group) => this.#forget(group),
    });
  }

  /** Step 3. */
  #accept({ batch }: EachBatchPayload): void {
    if (this.#membership.ending.aborted) return;
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
