/**
 * One partition, from its assignment to this process until it is taken away or the process ends.
 *
 * Invariant: a batch is handled only between a commit that names exactly it and a commit that says it is done; the batches of a
 * partition are handled one at a time in the order of the log, also over several terms of it in this process; and whoever
 * continues after a crash repeats the batch that was named, whole and under the same tokens, before anything else.
 *
 *   1. Records that arrive are kept; nothing is handled before it is known where to begin (`starting-point.ts`). Records are
 *      taken in only where the last ones ended; where the client delivers from elsewhere it is sent back.
 *   2. A cut that was begun in an earlier term is gathered whole and is the first batch. Where it cannot be had any more,
 *      everything from there to the end of the log is stored anew under tokens of its own.
 *   3. Before its first insert the batch is written down: its first offset, which is the committed one already, is committed
 *      again with metadata that holds first and last offset. That commit carries the group's generation, so it fails where the
 *      partition has gone to another process; then the handling stops there, with nothing stored.
 *   4. The batch is handled, again and again until that succeeds. The client's fetching, and with it the heartbeat, goes on
 *      meanwhile, so a long insert costs no session.
 *   5. The offset after the batch is committed, with metadata that says that everything before it is done.
 *
 * A process may stall between 3 and 4 until it has lost its place, and then store the batch late (a zombie). That changes
 * nothing: whoever has the partition now found the batch in the metadata and stored it under the same tokens, so what comes
 * late is a repeat of what is there. What the zombie wants after that batch begins with step 3, which fails. A batch that was
 * not written down cannot have been stored in part, so it may be divided anew.
 *
 * A commit is asked for from the beginning of a turn of the event loop, where generation and term always belong together: the
 * client changes its generation and tells of it within one turn.
 */
import type { KafkaMessage, OffsetsByTopicPartition } from 'kafkajs';
import { fault } from '../../errors/runlake-error.ts';
import type { Logger } from '../../telemetry/logger.ts';
import type { LogBatch, Subscription } from '../event-log.ts';
import type { ByteBudget } from './byte-budget.ts';
import { kafkaFault, kindsOf } from './client-fault.ts';
import { lostEvents, replays } from './kafka-metrics.ts';
import { type OffsetNote, type Replay, writeNote } from './offset-note.ts';
import { backoffMs, pause } from './pause.ts';
import { RecordBuffer } from './record-buffer.ts';
import { type KafkaRecord, recordOf } from './record-of.ts';
import type { StartingPoint } from './starting-point.ts';

/** Commits with the generation that the client has at this moment. */
export type Commit = (offsets: OffsetsByTopicPartition) => Promise<void>;

export interface TermOptions {
  readonly subscription: Subscription;
  /** As the topic is called in Kafka. */
  readonly topicName: string;
  readonly partition: number;
  /** Ends when an earlier term of this partition in this process handles nothing any more. */
  readonly predecessor: Promise<void>;
  readonly budget: ByteBudget;
  readonly logger: Logger;
  readonly brokers: string | undefined;
  newSalt(): string;
  /** Has the client deliver from `offset` on. */
  seek(offset: number): void;
}

const lostKinds = ['ILLEGAL_GENERATION', 'UNKNOWN_MEMBER_ID', 'FENCED_INSTANCE_ID'];
const firstPauseMs = 200;
const longestPauseMs = 5_000;

export class PartitionTerm {
  readonly #options: TermOptions;
  readonly #logger: Logger;
  readonly #buffer = new RecordBuffer();
  readonly #ended = new AbortController();
  #start: StartingPoint | undefined;
  #exact: readonly [number, number] | undefined;
  #replay: Replay | undefined;
  #position: number | undefined;
  #soughtFor: number | undefined;
  #highest = 0;
  #commit: Commit | undefined;
  #closing = false;
  #wake: () => void = () => {};

  constructor(options: TermOptions) {
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

  /** Offset of the first event that is not done; undefined before that is known. */
  get position(): number | undefined {
    return this.#position;
  }

  get bufferedBytes(): number {
    return this.#buffer.bytes;
  }

  /** Whether a batch could be handled with what is there, so that fetching may pause. */
  get hasBatch(): boolean {
    if (this.#start === undefined || this.#buffer.isEmpty) return false;
    return this.#exact === undefined || (this.#buffer.lastOffset ?? -1) >= this.#exact[1];
  }

  /** Step 1. */
  accept(messages: readonly KafkaMessage[], highest: number, commit: Commit): void {
    const [first] = messages;
    if (!this.alive || first === undefined) return;
    this.#commit = commit;
    this.#highest = Math.max(this.#highest, highest);
    const expected = this.#buffer.nextOffset;
    if (expected !== undefined && Number(first.offset) > expected && this.#soughtFor !== expected) {
      this.#goTo(expected);
      return;
    }
    this.#add(messages);
    this.#wake();
  }

  /** Says where to begin. */
  begin(start: StartingPoint, highest: number): void {
    if (!this.alive || this.#start !== undefined) return;
    const { topicName: topic } = this.#options;
    this.#start = start;
    this.#position = start.offset;
    this.#exact = start.exact;
    this.#replay = start.replay;
    this.#highest = Math.max(this.#highest, highest);
    if (start.lostEvents > 0) {
      lostEvents.inc({ topic }, start.lostEvents);
      this.#logger.error({ events: start.lostEvents }, 'events were deleted from the log before they were stored');
    }
    if (start.because !== undefined) this.#tellOfReplay(start.because);
    const firstFetched = this.#buffer.firstOffset;
    this.#forget(() => this.#buffer.begin(start.offset));
    // What was fetched so far began elsewhere: after the place to begin, or before a hole in what is left.
    if (firstFetched !== undefined && firstFetched > start.offset) {
      this.#forget(() => this.#buffer.clear());
      this.#buffer.begin(start.offset);
      this.#goTo(start.offset);
    }
    this.#wake();
  }

  /** Handles batches until the term ends; to be called once. */
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
    this.#forget(() => this.#buffer.clear());
  }

  /** The partition is no longer ours: no commit from now on. */
  end(): void {
    this.#ended.abort();
    this.#wake();
  }

  /** Takes no further batch; the one under way is finished, unless it waits to be tried again. */
  close(): void {
    this.#closing = true;
    this.#wake();
  }

  #add(messages: readonly KafkaMessage[]): void {
    const before = this.#buffer.bytes;
    this.#buffer.add(messages.map((message) => recordOf(this.#options.partition, message)));
    this.#options.budget.take(this.#buffer.bytes - before);
  }

  #forget(change: () => void): void {
    const before = this.#buffer.bytes;
    change();
    this.#options.budget.free(before - this.#buffer.bytes);
  }

  #goTo(offset: number): void {
    this.#soughtFor = offset;
    this.#options.seek(offset);
  }

  async #nextBatch(): Promise<KafkaRecord[] | undefined> {
    for (;;) {
      if (!this.alive || this.#closing) return undefined;
      if (this.hasBatch) return this.#exact ? this.#takeExact(this.#exact) : this.#take();
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }

  #take(): KafkaRecord[] {
    return this.#buffer.take(this.#options.subscription.limits);
  }

  /** Step 2. */
  #takeExact([first, last]: readonly [number, number]): KafkaRecord[] {
    this.#exact = undefined;
    const records = this.#buffer.takeExactly(first, last);
    if (records !== undefined) return records;
    this.#replay = { salt: this.#options.newSalt(), until: Math.max(this.#highest, last + 1) };
    this.#tellOfReplay('events were deleted');
    return this.#take();
  }

  /** Steps 3 to 5. */
  async #handle(records: readonly KafkaRecord[]): Promise<void> {
    const { subscription, partition } = this.#options;
    const first = (records[0] as KafkaRecord).offset;
    const next = (records.at(-1) as KafkaRecord).offset + 1;
    const replay = this.#replay && first < this.#replay.until ? { replay: this.#replay } : {};
    let written = false;
    const batch: LogBatch = {
      topic: subscription.topic,
      partition,
      records,
      ...(replay.replay ? { tokenSalt: replay.replay.salt } : {}),
      writeDownCut: async () => {
        if (!this.alive) throw this.#lost();
        if (!written) await this.#commitNote(first, { cut: [first, next - 1], ...replay });
        written = true;
      },
    };
    if (!(await this.#untilItPasses('a batch could not be stored', () => subscription.handle(batch)))) return;
    const done: OffsetNote = { next, ...(this.#replay && next < this.#replay.until ? replay : {}) };
    if (!(await this.#untilItPasses('an offset could not be committed', () => this.#commitNote(next, done)))) return;
    this.#position = next;
  }

  /** @returns whether it passed; not, where the term ended or is to close before that. */
  async #untilItPasses(what: string, work: () => Promise<void>): Promise<boolean> {
    for (let attempt = 0; this.alive; attempt++) {
      try {
        await work();
        return true;
      } catch (error) {
        if (!this.alive || this.#closing) return false;
        if (attempt % 10 === 0) this.#logger.error({ err: error, attempt }, `${what}: it is tried again`);
        await pause(backoffMs(attempt, firstPauseMs, longestPauseMs), this.#ended.signal);
        if (this.#closing) return false;
      }
    }
    return false;
  }

  /** @throws PARTITION_LOST where the partition is another's, KAFKA_UNAVAILABLE where that is not known. */
  async #commitNote(offset: number, note: OffsetNote): Promise<void> {
    const { topicName: topic, partition, brokers } = this.#options;
    await new Promise((resolve) => setImmediate(resolve));
    if (!this.alive || this.#commit === undefined) throw this.#lost();
    try {
      const commit = { partition, offset: String(offset), metadata: writeNote(note) };
      await this.#commit({ topics: [{ topic, partitions: [commit] }] });
    } catch (error) {
      if (!kindsOf(error).some((kind) => lostKinds.includes(kind))) throw kafkaFault(error, brokers);
      this.end();
      throw this.#lost();
    }
  }

  #lost() {
    return fault('PARTITION_LOST', { topic: this.#options.topicName, partition: this.#options.partition });
  }

  #tellOfReplay(because: string): void {
    const { topicName: topic } = this.#options;
    if (this.#replay === undefined) return;
    replays.inc({ topic, reason: because });
    const range = { from: this.#position, until: this.#replay.until, because };
    if (because === 'no position') this.#logger.info(range, 'the group has no position yet: it begins with the log');
    else this.#logger.warn(range, 'how far storing had come is not known: events are stored anew, in order');
  }
}

function bytesOf(records: readonly KafkaRecord[]): number {
  return records.reduce((sum, record) => sum + record.bytes, 0);
}
