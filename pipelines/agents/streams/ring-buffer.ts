/**
 * The ring buffer of the newest records of the topic, which all readers of this process share.
 *
 * Invariant: the buffer holds every valid record from `floor` on, in log order; its size in bytes is bounded. A cursor
 * points to the first unread record of its thread; if unread records were evicted, the cursor records that in `missed`.
 *
 *   1. A new record is appended to the ring and to its thread, and wakes the cursors of the thread.
 *   2. The oldest records are evicted when the buffer exceeds its size, or when they exceed the maximum age. A cursor
 *      that pointed to one of them advances and records whether the missed events are stored.
 *   3. A thread is removed when it has neither records nor cursors.
 */
import { getFieldOffset, readFlagAt, readTimeMicrosAt, readUuidAt } from '../../../infra/event-log/avro.ts';
import type { LogPosition, LogRecord } from '../../../infra/event-log/event-log.ts';
import { fixedWidthBytes, streamEvents } from '../../../schemas/topics.ts';
import type { StreamedEvent } from './stream-types.ts';

export interface BufferedRecord extends StreamRecordHead {
  readonly value: Buffer;
  /** The next record of the same thread. */
  next: BufferedRecord | undefined;
}

interface RingRecord extends BufferedRecord {
  readonly partition: number;
  readonly offset: number;
  readonly thread: Thread;
  readonly arrivedAtMs: number;
  newerRecord: RingRecord | undefined;
  next: RingRecord | undefined;
  event: StreamedEvent | 'unreadable' | undefined;
}

interface Thread {
  readonly key: string;
  first: RingRecord | undefined;
  last: RingRecord | undefined;
  readonly cursors: Set<Cursor>;
}

/**
 * What a cursor has missed because of evictions: no matching records, only records that are stored in ClickHouse, or
 * records that are lost.
 */
export type EvictionLoss = 'nothing' | 'stored' | 'lost';

/** The position of a reader in the records of a thread. */
export interface Cursor {
  /** The next record; undefined if none has arrived yet. */
  next: BufferedRecord | undefined;
  missed: EvictionLoss;
  readonly matches: (record: StreamRecordHead) => boolean;
  /** Called when a record is added to the thread, or when an unread matching record is evicted. */
  wake(): void;
}

export interface RingBufferLimits {
  readonly bytes: number;
  readonly ageMs: number;
  /** Maximum number of runs whose latest attempt is remembered. */
  readonly runs: number;
}

/** Estimated memory of a record in addition to its value. */
const recordOverheadBytes = 400;

export class RecordRingBuffer {
  readonly #limits: RingBufferLimits;
  readonly #threads = new Map<string, Thread>();
  readonly #attempts: LatestAttempts;
  readonly #floor = new Map<number, number>();
  #oldest: RingRecord | undefined;
  #newest: RingRecord | undefined;
  #bytes = 0;

  constructor(limits: RingBufferLimits) {
    this.#limits = limits;
    this.#attempts = new LatestAttempts(limits.runs);
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Number of threads with records or cursors. */
  get threads(): number {
    return this.#threads.size;
  }

  /** The log position at which the buffer begins. */
  get floor(): LogPosition {
    return Object.fromEntries(this.#floor);
  }

  /** Sets the start position of partitions. Does not change partitions whose position is known. */
  setStartPosition(from: LogPosition): void {
    for (const [partition, offset] of Object.entries(from)) {
      if (!this.#floor.has(Number(partition))) this.#floor.set(Number(partition), offset);
    }
  }

  /** Appends records and evicts the oldest ones if the buffer is too large (steps 1 and 2). */
  add(records: readonly LogRecord[]): void {
    const arrivedAtMs = performance.now();
    for (const { key, value, partition, offset } of records) {
      const head = decodeStreamHead(value);
      if (head === undefined || !this.#attempts.observe(head.runId, head.attempt)) continue;
      const thread = this.#threads.get(key) ?? this.#newThread(key);
      const record: RingRecord = {
        runId: head.runId,
        attempt: head.attempt,
        kept: head.kept,
        value: copyIfShared(value),
        partition,
        offset,
        thread,
        arrivedAtMs,
        newerRecord: undefined,
        next: undefined,
        event: undefined,
      };
      this.#bytes += value.length + recordOverheadBytes;
      if (this.#newest) this.#newest.newerRecord = record;
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

  /** Evicts records that exceed the maximum age (step 2). Call it at intervals. */
  evictExpiredRecords(): void {
    const before = performance.now() - this.#limits.ageMs;
    while (this.#oldest && this.#oldest.arrivedAtMs < before) this.#evict(this.#oldest);
  }

  /** Creates a cursor at the end of the thread's records. */
  attach(key: string, matches: Cursor['matches'], wake: () => void): Cursor {
    const thread = this.#threads.get(key) ?? this.#newThread(key);
    const cursor: Cursor = { next: undefined, missed: 'nothing', matches, wake };
    thread.cursors.add(cursor);
    return cursor;
  }

  detach(key: string, cursor: Cursor): void {
    const thread = this.#threads.get(key);
    if (thread === undefined) return;
    thread.cursors.delete(cursor);
    this.#forgetUnused(thread);
  }

  /** Moves a cursor to the oldest record of its thread. */
  rewind(key: string, cursor: Cursor): void {
    cursor.next = this.#threads.get(key)?.first;
    cursor.missed = 'nothing';
  }

  /** Returns the records of a thread, in log order. */
  *list(key: string): Generator<BufferedRecord, void, undefined> {
    for (let record: BufferedRecord | undefined = this.#threads.get(key)?.first; record; record = record.next)
      yield record;
  }

  #newThread(key: string): Thread {
    const thread: Thread = { key, first: undefined, last: undefined, cursors: new Set() };
    this.#threads.set(key, thread);
    return thread;
  }

  #evict(record: RingRecord): void {
    const { thread, value, partition, offset, kept } = record;
    this.#oldest = record.newerRecord;
    if (this.#oldest === undefined) this.#newest = undefined;
    this.#bytes -= value.length + recordOverheadBytes;
    this.#floor.set(partition, offset + 1);
    thread.first = record.next;
    if (thread.first === undefined) thread.last = undefined;
    for (const cursor of thread.cursors) {
      if (cursor.next !== record) continue;
      cursor.next = record.next;
      if (!cursor.matches(record)) continue;
      if (!kept) cursor.missed = 'lost';
      else if (cursor.missed === 'nothing') cursor.missed = 'stored';
      cursor.wake();
    }
    // Clear the links: otherwise a reader that holds the record would keep all later records in memory.
    record.next = undefined;
    record.newerRecord = undefined;
    this.#forgetUnused(thread);
  }

  #forgetUnused(thread: Thread): void {
    if (thread.first === undefined && thread.cursors.size === 0) this.#threads.delete(thread.key);
  }
}

/**
 * Copies a value that is a small part of a larger buffer. kafkajs returns slices of a whole fetch response, which one
 * record would otherwise keep in memory.
 */
function copyIfShared(value: Buffer): Buffer {
  return value.buffer.byteLength > 2 * value.byteLength ? Buffer.from(value) : value;
}

/** Decodes a record; undefined if it is invalid. The result is cached if the thread has several readers. */
export function decodeRecord(record: BufferedRecord): StreamedEvent | undefined {
  const held = record as RingRecord;
  const event = held.event ?? decodeStreamRecord(record.value, record.runId) ?? 'unreadable';
  // With a single reader, a cached event would only cost memory.
  if (held.thread.cursors.size > 1) held.event = event;
  return event === 'unreadable' ? undefined : event;
}

/**
 * Remembers the latest attempt of the most recently seen runs. Events of an attempt are invalid after the first event
 * of a later attempt, because the worker of the earlier attempt had lost the run.
 */
class LatestAttempts {
  readonly #maxRuns: number;
  readonly #latest = new Map<string, number>();

  constructor(maxRuns: number) {
    this.#maxRuns = maxRuns;
  }

  /** Records an event; call it in log order. @returns whether the event is valid. */
  observe(runId: string, attempt: number): boolean {
    const latest = this.#latest.get(runId);
    if (latest !== undefined && attempt < latest) return false;
    if (latest === attempt) return true;
    this.#latest.delete(runId);
    this.#latest.set(runId, attempt);
    if (this.#latest.size > this.#maxRuns) {
      for (const oldest of this.#latest.keys()) {
        this.#latest.delete(oldest);
        break;
      }
    }
    return true;
  }
}

/** The fields that are decoded from every record, regardless of its readers. */
export interface StreamRecordHead {
  readonly runId: string;
  readonly attempt: number;
  readonly kept: boolean;
}

const runIdOffset = getFieldOffset(streamEvents, 'run_id');
const keptOffset = getFieldOffset(streamEvents, 'kept');
const createdAtOffset = getFieldOffset(streamEvents, 'created_at');
const variableFieldsOffset = createdAtOffset + fixedWidthBytes.time;

/** Decodes the head of a framed record of `stream-events`; undefined if the record is invalid. */
export function decodeStreamHead(framed: Buffer): StreamRecordHead | undefined {
  if (framed[0] !== 0 || framed.length <= variableFieldsOffset || framed[runIdOffset] !== 0x48) return undefined;
  // The zig-zag encoding of a number below 64 is one byte.
  const first = framed[variableFieldsOffset] as number;
  const attempt = first < 0x80 ? first >> 1 : new AvroFieldReader(framed).long();
  return {
    runId: runIdCache.read(framed, runIdOffset + 1, runIdOffset + fixedWidthBytes.uuid),
    attempt,
    kept: readFlagAt(framed, keptOffset),
  };
}

/**
 * Decodes a whole record; undefined if it is truncated. `data` is a view of the record's memory.
 *
 * @param runId the run id; pass it if the head of the record was decoded before, to avoid decoding it again.
 */
export function decodeStreamRecord(framed: Buffer, runId = readUuidAt(framed, runIdOffset)): StreamedEvent | undefined {
  const fields = new AvroFieldReader(framed);
  const attempt = fields.long();
  const seq = fields.long();
  const threadSeq = fields.long();
  const mode = fields.text(modeCache);
  const event = fields.text(eventCache);
  const namespace = fields.text(namespaceCache);
  const data = fields.bytes();
  const isEnd = fields.flag();
  if (fields.isTruncated) return undefined;
  const createdAtMicros = readTimeMicrosAt(framed, createdAtOffset);
  return { runId, attempt, seq, threadSeq, mode, event, namespace, data, isEnd, createdAtMicros };
}

/** Reads Avro primitives in sequence, starting after the fixed-width fields. Source: Avro 1.12, "Binary Encoding". */
class AvroFieldReader {
  readonly #framed: Buffer;
  #at = variableFieldsOffset;

  constructor(framed: Buffer) {
    this.#framed = framed;
  }

  get isTruncated(): boolean {
    return this.#at > this.#framed.length;
  }

  long(): number {
    let value = 0;
    for (let factor = 1; ; factor *= 128) {
      // Bytes past the end are read as zero; callers check `isTruncated` afterwards.
      const byte = this.#framed[this.#at++] ?? 0;
      value += (byte & 0x7f) * factor;
      if (byte < 0x80) return value % 2 === 0 ? value / 2 : -(value + 1) / 2;
    }
  }

  bytes(): Buffer {
    const length = this.long();
    const from = this.#at;
    this.#at = length >= 0 ? from + length : Number.POSITIVE_INFINITY;
    return this.#framed.subarray(from, this.#at);
  }

  text(cache: TextCache): string {
    const length = this.long();
    const from = this.#at;
    this.#at = length >= 0 ? from + length : Number.POSITIVE_INFINITY;
    return cache.read(this.#framed, from, this.#at);
  }

  flag(): boolean {
    return this.#framed[this.#at++] === 1;
  }
}

/**
 * Decodes strings that often repeat. Caches the last string and returns it without decoding if the next one has the
 * same bytes.
 */
class TextCache {
  #bytes = Buffer.alloc(0);
  #text = '';

  read(framed: Buffer, from: number, to: number): string {
    if (!this.#isCached(framed, from, to)) {
      this.#bytes = Buffer.from(framed.subarray(from, to));
      this.#text = this.#bytes.toString('utf8');
    }
    return this.#text;
  }

  #isCached(framed: Buffer, from: number, to: number): boolean {
    if (to - from !== this.#bytes.length) return false;
    for (let at = from; at < to; at += 1) if (framed[at] !== this.#bytes[at - from]) return false;
    return true;
  }
}

const runIdCache = new TextCache();
const modeCache = new TextCache();
const eventCache = new TextCache();
const namespaceCache = new TextCache();
