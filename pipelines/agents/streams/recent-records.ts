/**
 * The newest records of the topic, which the readers of this process share.
 *
 * Invariant: every record from `floor` on that counts is here, in the order of the log; what they weigh is bounded; a cursor
 * stands before the first record of its thread that was not taken from it, or knows that records it had not taken are gone.
 *
 *   1. A record that comes joins the end of the ring and of its thread, and wakes the cursors that wait there.
 *   2. The oldest leave when there are too many bytes, or when they are old. A cursor that stood before one of them moves on and
 *      notes whether what it missed is stored.
 *   3. A thread is forgotten with its last record and its last cursor.
 */
import type { LogPosition, LogRecord } from '../../../infra/event-log/event-log.ts';
import { RecentAttempts } from './recent-attempts.ts';
import type { StreamedEvent } from './stream-ports.ts';
import { decodeStreamRecord, headOf, type StreamRecordHead } from './stream-record.ts';

export interface RecentRecord extends StreamRecordHead {
  readonly value: Buffer;
  /** The next one of the same thread. */
  next: RecentRecord | undefined;
}

interface RingRecord extends RecentRecord {
  readonly partition: number;
  readonly offset: number;
  readonly thread: Thread;
  readonly arrivedAtMs: number;
  newer: RingRecord | undefined;
  next: RingRecord | undefined;
  event: StreamedEvent | 'unreadable' | undefined;
}

interface Thread {
  readonly key: string;
  first: RingRecord | undefined;
  last: RingRecord | undefined;
  readonly cursors: Set<Cursor>;
}

/** What left the ring before a cursor took it: nothing it wanted, only what is stored, or what is nowhere any more. */
export type Missed = 'nothing' | 'stored' | 'lost';

/** Where a reader stands in the records of a thread. */
export interface Cursor {
  /** The next record; `undefined` where there is none yet. */
  next: RecentRecord | undefined;
  missed: Missed;
  readonly wants: (record: StreamRecordHead) => boolean;
  /** Called when a record came or went. */
  wake(): void;
}

export interface RecentLimits {
  readonly bytes: number;
  readonly ageMs: number;
  /** Runs whose latest attempt is remembered. */
  readonly runs: number;
}

/** What a record takes up beside its bytes. */
const overheadBytes = 400;

export class RecentRecords {
  readonly #limits: RecentLimits;
  readonly #threads = new Map<string, Thread>();
  readonly #attempts: RecentAttempts;
  readonly #floor = new Map<number, number>();
  #oldest: RingRecord | undefined;
  #newest: RingRecord | undefined;
  #bytes = 0;

  constructor(limits: RecentLimits, from: LogPosition = {}) {
    this.#limits = limits;
    this.#attempts = new RecentAttempts(limits.runs);
    this.beginAt(from);
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Threads of which there are records or cursors. */
  get threads(): number {
    return this.#threads.size;
  }

  /** What stands before it in the log is not here. */
  get floor(): LogPosition {
    return Object.fromEntries(this.#floor);
  }

  /** Where the records begin that are still to come. Partitions of which records came already are left alone. */
  beginAt(from: LogPosition): void {
    for (const [partition, offset] of Object.entries(from)) {
      if (!this.#floor.has(Number(partition))) this.#floor.set(Number(partition), offset);
    }
  }

  /** Steps 1 and 2. */
  add(records: readonly LogRecord[]): void {
    const arrivedAtMs = performance.now();
    for (const { key, value, partition, offset } of records) {
      const head = headOf(value);
      if (head === undefined || !this.#attempts.counts(head.runId, head.attempt)) continue;
      const thread = this.#threads.get(key) ?? this.#newThread(key);
      const record: RingRecord = {
        runId: head.runId,
        attempt: head.attempt,
        kept: head.kept,
        value,
        partition,
        offset,
        thread,
        arrivedAtMs,
        newer: undefined,
        next: undefined,
        event: undefined,
      };
      this.#bytes += value.length + overheadBytes;
      if (this.#newest) this.#newest.newer = record;
      else this.#oldest = record;
      this.#newest = record;
      if (thread.last) thread.last.next = record;
      else thread.first = record;
      thread.last = record;
      for (const cursor of thread.cursors) {
        cursor.next ??= record;
        cursor.wake();
      }
    }
    while (this.#bytes > this.#limits.bytes && this.#oldest) this.#evict(this.#oldest);
  }

  /** Step 2, to be called now and then. */
  dropOld(): void {
    const before = performance.now() - this.#limits.ageMs;
    while (this.#oldest && this.#oldest.arrivedAtMs < before) this.#evict(this.#oldest);
  }

  /** Puts a cursor before what comes next. */
  attach(key: string, wants: Cursor['wants'], wake: () => void): Cursor {
    const thread = this.#threads.get(key) ?? this.#newThread(key);
    const cursor: Cursor = { next: undefined, missed: 'nothing', wants, wake };
    thread.cursors.add(cursor);
    return cursor;
  }

  detach(key: string, cursor: Cursor): void {
    const thread = this.#threads.get(key);
    if (thread === undefined) return;
    thread.cursors.delete(cursor);
    this.#forgetUnused(thread);
  }

  /** Puts a cursor before the oldest record of its thread. */
  rewind(key: string, cursor: Cursor): void {
    cursor.next = this.#threads.get(key)?.first;
    cursor.missed = 'nothing';
  }

  #newThread(key: string): Thread {
    const thread: Thread = { key, first: undefined, last: undefined, cursors: new Set() };
    this.#threads.set(key, thread);
    return thread;
  }

  #evict(record: RingRecord): void {
    const { thread, value, partition, offset, kept } = record;
    this.#oldest = record.newer;
    if (this.#oldest === undefined) this.#newest = undefined;
    this.#bytes -= value.length + overheadBytes;
    this.#floor.set(partition, offset + 1);
    thread.first = record.next;
    if (thread.first === undefined) thread.last = undefined;
    for (const cursor of thread.cursors) {
      if (cursor.next !== record) continue;
      cursor.next = record.next;
      if (!cursor.wants(record)) continue;
      if (!kept) cursor.missed = 'lost';
      else if (cursor.missed === 'nothing') cursor.missed = 'stored';
      cursor.wake();
    }
    // A reader that stands on it would else hold all that follows.
    record.next = undefined;
    record.newer = undefined;
    this.#forgetUnused(thread);
  }

  #forgetUnused(thread: Thread): void {
    if (thread.first === undefined && thread.cursors.size === 0) this.#threads.delete(thread.key);
  }
}

/** A record decoded, once where there are several readers; `undefined` where it cannot be. */
export function eventOf(record: RecentRecord): StreamedEvent | undefined {
  const held = record as RingRecord;
  const event = held.event ?? decodeStreamRecord(record.value, record.runId) ?? 'unreadable';
  // What is decoded for one alone is not kept any longer than it is used.
  if (held.thread.cursors.size > 1) held.event = event;
  return event === 'unreadable' ? undefined : event;
}
