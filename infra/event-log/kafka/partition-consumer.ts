/**
 * Consumes one partition, from its assignment to this process until it is revoked or the process ends.
 *
 * Invariant: an offset is committed only after all events before it are stored. The batches of a partition are handled
 * one at a time, across all assignments of the partition to this process. After a crash the next process handles the
 * events after the committed offset again; storing an event twice, or in another order, has no effect.
 *
 *   1. Buffer incoming records; handle none before the starting point is known ({@link findPositions}). If the client
 *      skips offsets, seek back once; accept a gap that remains, because its records no longer exist. They are counted as
 *      lost: offsets are also missing after compaction and transactions, but the topics are not compacted, and the
 *      producer is idempotent without transactions.
 *   2. Handle a batch; retry until it succeeds. The client continues to fetch and to send heartbeats meanwhile, so a
 *      long insert does not end the session.
 *   3. Commit the offset after the batch. The commit carries the group's generation, so it fails if the partition was
 *      assigned to another process.
 *
 * Each commit starts at the beginning of a turn of the event loop. At that point generation and assignment always
 * match, because the client changes its generation and emits its event within the same turn.
 */
import type { Admin, KafkaMessage, OffsetsByTopicPartition } from 'kafkajs';
import { runlakeError } from '../../errors/runlake-error.ts';
import type { Logger } from '../../telemetry/logger.ts';
import { counter } from '../../telemetry/metrics.ts';
import { computeBackoffMs, pause } from '../../timeouts/backoff.ts';
import type { LogBatch, Subscription } from '../event-log.ts';
import { hasErrorName, toKafkaError } from './client.ts';
import { type ByteBudget, type KafkaRecord, RecordBuffer, sumBytes, toKafkaRecord } from './record-buffer.ts';

/** Committed offset and log bounds of a partition at its assignment. */
export interface PartitionPosition {
  /** Committed offset of the group; negative if it has none. */
  readonly committed: number;
  /** First offset that the log still holds, and the log-end offset. */
  readonly low: number;
  readonly high: number;
}

/**
 * Returns the committed offset of `group`, and the first and log-end offsets, for each partition of `topic`. @throws
 * the errors of Kafka.
 */
export async function findPositions(
  admin: Admin,
  group: string,
  topic: string,
): Promise<ReadonlyMap<number, PartitionPosition>> {
  const [committed, ends] = await Promise.all([
    admin.fetchOffsets({ groupId: group, topics: [topic] }),
    admin.fetchTopicOffsets(topic),
  ]);
  const found = new Map<number, PartitionPosition>();
  for (const { partition, offset } of committed.flatMap(({ partitions }) => partitions)) {
    const end = ends.find((each) => each.partition === partition);
    if (end === undefined) continue;
    found.set(partition, { committed: Number(offset), low: Number(end.low), high: Number(end.high) });
  }
  return found;
}

/**
 * Returns true if a group has consumed all records before `end`. Offsets that no longer exist count as consumed: those
 * that retention deleted, and those beyond the log-end offset of a recreated topic. Those of an unknown partition do not.
 */
export function hasConsumedUpTo(found: PartitionPosition | undefined, end: number): boolean {
  if (found === undefined) return end === 0;
  const { committed, low, high } = found;
  return Math.max(committed, low) >= Math.min(end, high);
}

/** Where to start consuming a partition. */
export interface StartingPoint {
  readonly offset: number;
  /** Why the partition cannot continue at its committed offset. */
  readonly reason?: 'the group has no committed offset' | 'events were deleted' | 'the log is another one';
  /** Number of events that were deleted from the log before they were stored. Undefined if it is not known. */
  readonly lostEvents: number | undefined;
}

/** kafkajs commits this offset when the next offset of a partition does not exist any more. */
const resetOffset = -2;

/**
 * Decides where to start consuming a partition: at the committed offset or, if the log does not have it, at the first
 * offset. Events that are already stored may then be stored again, with the same result.
 */
export function chooseStartingPoint({ committed, low, high }: PartitionPosition): StartingPoint {
  if (committed === resetOffset) return { offset: low, reason: 'events were deleted', lostEvents: undefined };
  if (committed < 0) return { offset: low, reason: 'the group has no committed offset', lostEvents: 0 };
  if (committed > high) return { offset: low, reason: 'the log is another one', lostEvents: 0 };
  if (committed < low) return { offset: low, reason: 'events were deleted', lostEvents: low - committed };
  return { offset: committed, lostEvents: 0 };
}

const lostEvents = counter(
  'runlake_event_log_lost_events_total',
  'Events that Kafka deleted before they were stored, by topic.',
  ['topic'],
);

/** Commits offsets with the client's current generation. */
type Commit = (offsets: OffsetsByTopicPartition) => Promise<void>;

interface PartitionConsumerOptions {
  readonly subscription: Subscription;
  /** Name of the topic in Kafka. */
  readonly topicName: string;
  readonly partition: number;
  /** Settles when the previous consumer of this partition in this process has stopped handling batches. */
  readonly predecessor: Promise<void>;
  readonly budget: ByteBudget;
  readonly logger: Logger;
  readonly brokers: string | undefined;
  /** Makes the client continue with the record at `offset`. */
  seek(offset: number): void;
  /** Called after a batch was taken from the buffer, which then holds fewer bytes. */
  onBatchTaken(): void;
}

const lostPartitionErrorNames = ['ILLEGAL_GENERATION', 'UNKNOWN_MEMBER_ID', 'FENCED_INSTANCE_ID'];
const minPauseMs = 200;
const maxPauseMs = 5_000;

export class PartitionConsumer {
  readonly #options: PartitionConsumerOptions;
  readonly #logger: Logger;
  readonly #buffer = new RecordBuffer();
  readonly #ended = new AbortController();
  #position: number | undefined;
  #lastSeek: number | undefined;
  #commit: Commit | undefined;
  #closing = false;
  #isHandling = false;
  #wake: () => void = () => {};

  constructor(options: PartitionConsumerOptions) {
    this.#options = options;
    const { topicName: topic, partition } = options;
    this.#logger = options.logger.child({ topic, partition });
  }

  get partition(): number {
    return this.#options.partition;
  }

  get alive(): boolean {
    return !this.#ended.signal.aborted;
  }

  /** First unconsumed offset; undefined until the starting point is known. */
  get position(): number | undefined {
    return this.#position;
  }

  get bufferedBytes(): number {
    return this.#buffer.bytes;
  }

  /** Whether a batch is being stored; its records stay in memory until its offset is committed. */
  get isHandling(): boolean {
    return this.#isHandling;
  }

  /** Step 1 of the header comment: buffers the fetched messages. */
  accept(messages: readonly KafkaMessage[], commit: Commit): void {
    const [first] = messages;
    if (!this.alive || first === undefined) return;
    this.#commit = commit;
    const expected = this.#buffer.nextOffset;
    const missing = expected === undefined ? 0 : Number(first.offset) - expected;
    if (expected !== undefined && missing > 0) {
      if (this.#lastSeek !== expected) {
        this.#seek(expected);
        return;
      }
      this.#reportLoss(missing);
    }
    this.#add(messages);
    this.#wake();
  }

  /** Sets the starting point; later calls do nothing. */
  begin(start: StartingPoint): void {
    if (!this.alive || this.#position !== undefined) return;
    this.#position = start.offset;
    if (start.reason === 'events were deleted') this.#reportLoss(start.lostEvents);
    if (start.reason !== undefined) this.#logger.info(start, 'starting at the first offset of the log');
    const firstFetched = this.#buffer.firstOffset;
    this.#discard(() => this.#buffer.begin(start.offset));
    // Records between the starting point and the buffered records are missing, so fetch again from the starting point.
    if (firstFetched !== undefined && firstFetched > start.offset) {
      this.#discard(() => this.#buffer.clear());
      this.#buffer.begin(start.offset);
      this.#seek(start.offset);
    }
    this.#wake();
  }

  /** Handles batches until the assignment ends. Call it once. */
  async run(): Promise<void> {
    await this.#options.predecessor;
    for (;;) {
      const records = await this.#nextBatch();
      if (records === undefined) break;
      try {
        await this.#handle(records);
      } finally {
        this.#isHandling = false;
        this.#options.budget.free(sumBytes(records));
      }
    }
    this.#discard(() => this.#buffer.clear());
  }

  /** Ends the assignment. Nothing is committed afterwards. */
  end(): void {
    this.#ended.abort();
    this.#wake();
  }

  /** Stops taking batches. The batch in progress is finished unless it is waiting for a retry. */
  close(): void {
    this.#closing = true;
    this.#wake();
  }

  #add(messages: readonly KafkaMessage[]): void {
    const before = this.#buffer.bytes;
    this.#buffer.add(messages.map((message) => toKafkaRecord(this.#options.partition, message)));
    this.#options.budget.take(this.#buffer.bytes - before);
  }

  #reportLoss(events: number | undefined): void {
    lostEvents.inc({ topic: this.#options.topicName }, events ?? 0);
    this.#logger.error({ events }, 'events were deleted from the log before they were stored');
  }

  #discard(change: () => void): void {
    const before = this.#buffer.bytes;
    change();
    this.#options.budget.free(before - this.#buffer.bytes);
  }

  #seek(offset: number): void {
    this.#lastSeek = offset;
    this.#options.seek(offset);
  }

  async #nextBatch(): Promise<KafkaRecord[] | undefined> {
    for (;;) {
      if (!this.alive || this.#closing) return undefined;
      if (this.#position !== undefined && !this.#buffer.isEmpty) {
        const taken = this.#buffer.take(this.#options.subscription.limits);
        this.#isHandling = true;
        this.#options.onBatchTaken();
        return taken;
      }
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }

  /** Steps 2 and 3 of the header comment: handles a batch, then commits its offset. */
  async #handle(records: readonly KafkaRecord[]): Promise<void> {
    const { subscription, partition } = this.#options;
    const next = (records.at(-1) as KafkaRecord).offset + 1;
    const batch: LogBatch = { topic: subscription.topic, partition, records };
    if (!(await this.#retry('a batch could not be stored', () => subscription.handle(batch)))) return;
    if (!(await this.#retry('an offset could not be committed', () => this.#commitOffset(next)))) return;
    this.#position = next;
  }

  /**
   * Retries `work` with backoff. @returns false if the assignment ended, or the consumer is closing, before `work`
   * succeeded.
   */
  async #retry(failure: string, work: () => Promise<void>): Promise<boolean> {
    for (let attempt = 0; this.alive; attempt++) {
      try {
        await work();
        return true;
      } catch (error) {
        if (!this.alive || this.#closing) return false;
        if (attempt % 10 === 0) this.#logger.error({ err: error, attempt }, `${failure}: retrying`);
        await pause(computeBackoffMs(attempt, minPauseMs, maxPauseMs), this.#ended.signal);
        if (this.#closing) return false;
      }
    }
    return false;
  }

  /**
   * Commits an offset.
   *
   * @throws PARTITION_LOST if the partition is assigned to another process, KAFKA_UNAVAILABLE if the outcome is
   *   unknown.
   */
  async #commitOffset(offset: number): Promise<void> {
    const { topicName: topic, partition, brokers } = this.#options;
    await new Promise((resolve) => setImmediate(resolve));
    if (!this.alive || this.#commit === undefined) throw this.#lost();
    try {
      await this.#commit({ topics: [{ topic, partitions: [{ partition, offset: String(offset) }] }] });
    } catch (error) {
      if (!hasErrorName(error, lostPartitionErrorNames)) throw toKafkaError(error, brokers);
      this.end();
      throw this.#lost();
    }
  }

  #lost() {
    return runlakeError('PARTITION_LOST', { topic: this.#options.topicName, partition: this.#options.partition });
  }
}
