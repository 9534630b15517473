/**
 * Consumes one partition, from its assignment to this process until it is revoked or the process ends.
 *
 * Invariant: a batch is handled only between a commit that names exactly this batch and a commit that marks it
 * consumed. The batches of a partition are handled one at a time in log order, across all assignments of the partition
 * to this process. The process that continues after a crash first repeats the named batch, whole and under the same
 * tokens.
 *
 *   1. Buffer incoming records; handle none before the starting point is known (`offset-metadata.ts`). If the client
 *      skips offsets, seek back once; accept a gap that remains, because its records no longer exist.
 *   2. If an earlier assignment has begun a batch, wait until that batch is in the buffer whole, and handle it first.
 *      If its records no longer exist, replay everything from there to the log-end offset under new tokens.
 *   3. Before the first insert of a batch, commit its first offset again (it is the committed one already) with
 *      metadata that holds first and last offset. The commit carries the group's generation, so it fails if the
 *      partition was assigned to another process. Handling then stops, with nothing stored.
 *   4. Handle the batch; retry until it succeeds. The client continues to fetch and to send heartbeats meanwhile, so a
 *      long insert does not end the session.
 *   5. Commit the offset after the batch, with metadata that marks everything before it as consumed.
 *
 * A process may stall between steps 3 and 4 until it has lost the partition, and then store the batch late (a zombie).
 * This is harmless: the new owner found the batch in the metadata and stored it under the same tokens, so the late
 * inserts are repeats. The zombie's next batch begins with step 3, which fails. A batch that was not named in a commit
 * cannot be stored in part, so it may be divided differently.
 *
 * Each commit starts at the beginning of a turn of the event loop. At that point generation and assignment always
 * match, because the client changes its generation and emits the event within one turn.
 */
import type { KafkaMessage, OffsetsByTopicPartition } from 'kafkajs';
import { runlakeError } from '../../errors/runlake-error.ts';
import type { Logger } from '../../telemetry/logger.ts';
import { counter } from '../../telemetry/metrics.ts';
import { backoffMs, pause } from '../../timeouts/backoff.ts';
import type { LogBatch, Subscription } from '../event-log.ts';
import { isOfKind, kafkaError } from './client.ts';
import { encodeOffsetMetadata, type OffsetMetadata, type Replay, type StartingPoint } from './offset-metadata.ts';
import { type ByteBudget, bytesOf, type KafkaRecord, RecordBuffer, recordOf } from './record-buffer.ts';

const replays = counter(
  'runlake_event_log_replays_total',
  'Times that events of a partition are inserted again from an earlier position, by topic and reason.',
  ['topic', 'reason'],
);

const lostEvents = counter(
  'runlake_event_log_lost_events_total',
  'Events that Kafka deleted before they were stored, by topic.',
  ['topic'],
);

/** Commits with the client's current generation. */
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
  newSalt(): string;
  /** Makes the client deliver from `offset` on. */
  seek(offset: number): void;
}

const lostKinds = ['ILLEGAL_GENERATION', 'UNKNOWN_MEMBER_ID', 'FENCED_INSTANCE_ID'];
const minPauseMs = 200;
const maxPauseMs = 5_000;

export class PartitionConsumer {
  readonly #options: PartitionConsumerOptions;
  readonly #logger: Logger;
  readonly #buffer = new RecordBuffer();
  readonly #ended = new AbortController();
  #start: StartingPoint | undefined;
  #exact: readonly [number, number] | undefined;
  #replay: Replay | undefined;
  #position: number | undefined;
  #lastSeek: number | undefined;
  #logEndOffset = 0;
  #commit: Commit | undefined;
  #closing = false;
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

  /** Whether the buffer holds a complete batch, so that fetching may pause. */
  get hasBatch(): boolean {
    if (this.#start === undefined || this.#buffer.isEmpty) return false;
    return this.#exact === undefined || (this.#buffer.lastOffset ?? -1) >= this.#exact[1];
  }

  /** Step 1. */
  accept(messages: readonly KafkaMessage[], logEndOffset: number, commit: Commit): void {
    const [first] = messages;
    if (!this.alive || first === undefined) return;
    this.#commit = commit;
    this.#logEndOffset = Math.max(this.#logEndOffset, logEndOffset);
    const expected = this.#buffer.nextOffset;
    if (expected !== undefined && Number(first.offset) > expected && this.#lastSeek !== expected) {
      this.#seek(expected);
      return;
    }
    this.#add(messages);
    this.#wake();
  }

  /** Sets the starting point; later calls do nothing. */
  begin(start: StartingPoint, logEndOffset: number): void {
    if (!this.alive || this.#start !== undefined) return;
    const { topicName: topic } = this.#options;
    this.#start = start;
    this.#position = start.offset;
    this.#exact = start.exact;
    this.#replay = start.replay;
    this.#logEndOffset = Math.max(this.#logEndOffset, logEndOffset);
    if (start.lostEvents > 0) {
      lostEvents.inc({ topic }, start.lostEvents);
      this.#logger.error({ events: start.lostEvents }, 'events were deleted from the log before they were stored');
    }
    if (start.because !== undefined) this.#reportReplay(start.because);
    const firstFetched = this.#buffer.firstOffset;
    this.#discard(() => this.#buffer.begin(start.offset));
    // The buffered records begin after the starting point, so records between are missing: fetch again from there.
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
    if (this.alive) this.#options.subscription.assigned?.(this.#options.partition);
    for (;;) {
      const records = await this.#nextBatch();
      if (records === undefined) break;
      try {
        await this.#handle(records);
      } finally {
        this.#options.budget.free(bytesOf(records));
      }
    }
    this.#discard(() => this.#buffer.clear());
  }

  /** Ends the assignment: no commit from now on. */
  end(): void {
    this.#ended.abort();
    this.#wake();
  }

  /** Takes no further batch; finishes the batch in progress unless it is waiting for a retry. */
  close(): void {
    this.#closing = true;
    this.#wake();
  }

  #add(messages: readonly KafkaMessage[]): void {
    const before = this.#buffer.bytes;
    this.#buffer.add(messages.map((message) => recordOf(this.#options.partition, message)));
    this.#options.budget.take(this.#buffer.bytes - before);
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
      if (this.hasBatch) return this.#takeBatch();
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }

  /** Step 2. */
  #takeBatch(): KafkaRecord[] {
    if (this.#exact !== undefined) {
      const [first, last] = this.#exact;
      this.#exact = undefined;
      const records = this.#buffer.takeExactly(first, last);
      if (records !== undefined) return records;
      this.#replay = { salt: this.#options.newSalt(), until: Math.max(this.#logEndOffset, last + 1) };
      this.#reportReplay('events were deleted');
    }
    return this.#buffer.take(this.#options.subscription.limits);
  }

  /** Steps 3 to 5. */
  async #handle(records: readonly KafkaRecord[]): Promise<void> {
    const { subscription, partition } = this.#options;
    const first = (records[0] as KafkaRecord).offset;
    const next = (records.at(-1) as KafkaRecord).offset + 1;
    const replay = this.#replay && first < this.#replay.until ? { replay: this.#replay } : {};
    let begun = false;
    const batch: LogBatch = {
      topic: subscription.topic,
      partition,
      records,
      ...(replay.replay ? { tokenSalt: replay.replay.salt } : {}),
      beginInsert: async () => {
        if (!this.alive) throw this.#lost();
        if (!begun) await this.#commitOffset(first, { batch: [first, next - 1], ...replay });
        begun = true;
      },
    };
    if (!(await this.#retry('a batch could not be stored', () => subscription.handle(batch)))) return;
    const done: OffsetMetadata = { next, ...(this.#replay && next < this.#replay.until ? replay : {}) };
    if (!(await this.#retry('an offset could not be committed', () => this.#commitOffset(next, done)))) return;
    this.#position = next;
  }

  /**
   * Retries `work` with backoff. @returns false if the assignment ended, or the consumer is closing, before `work` succeeded.
   */
  async #retry(failure: string, work: () => Promise<void>): Promise<boolean> {
    for (let attempt = 0; this.alive; attempt++) {
      try {
        await work();
        return true;
      } catch (error) {
        if (!this.alive || this.#closing) return false;
        if (attempt % 10 === 0) this.#logger.error({ err: error, attempt }, `${failure}: retrying`);
        await pause(backoffMs(attempt, minPauseMs, maxPauseMs), this.#ended.signal);
        if (this.#closing) return false;
      }
    }
    return false;
  }

  /** @throws PARTITION_LOST if another process has the partition, KAFKA_UNAVAILABLE if the outcome is unknown. */
  async #commitOffset(offset: number, metadata: OffsetMetadata): Promise<void> {
    const { topicName: topic, partition, brokers } = this.#options;
    await new Promise((resolve) => setImmediate(resolve));
    if (!this.alive || this.#commit === undefined) throw this.#lost();
    try {
      const commit = { partition, offset: String(offset), metadata: encodeOffsetMetadata(metadata) };
      await this.#commit({ topics: [{ topic, partitions: [commit] }] });
    } catch (error) {
      if (!isOfKind(error, lostKinds)) throw kafkaError(error, brokers);
      this.end();
      throw this.#lost();
    }
  }

  #lost() {
    return runlakeError('PARTITION_LOST', { topic: this.#options.topicName, partition: this.#options.partition });
  }

  #reportReplay(because: string): void {
    const { topicName: topic } = this.#options;
    if (this.#replay === undefined) return;
    replays.inc({ topic, reason: because });
    const range = { from: this.#position, until: this.#replay.until, because };
    if (because === 'no position')
      this.#logger.info(range, 'the group has no committed offset: starting at the first offset');
    else this.#logger.warn(range, 'no valid committed offset metadata: replaying events in order');
  }
}
