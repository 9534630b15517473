/**
 * A subscription to the events of one run or thread.
 *
 * Invariant: a reader yields each valid event exactly once, in order and without gaps, or ends with an error. All
 * readers share one ring buffer. Each reader holds only a cursor into the buffer and no events, so a slow reader costs
 * nothing.
 *
 *   1. A reader that starts at `now` begins at the end of the ring buffer. Every other reader begins at the oldest
 *      record of the ring buffer. If that record does not directly follow the position of the reader, the reader
 *      waits until all older events are stored, and reads the stored rows first. If only ends of earlier runs can
 *      precede that record, the reader reads only these.
 *   2. The reader continues through the ring buffer, skips events that it has already yielded, and waits at the end
 *      for new records.
 *   3. At a gap in the stored rows or in the buffered records, the reader reads both again until the gap is filled or
 *      the timeout has passed. If a newer attempt of the run has begun, the reader skips the remaining events of the
 *      old attempt, which are no longer valid. If the run has ended, the gap is an error. In both cases the reader
 *      reads rows and records once more before it skips events or fails.
 *   4. If records were evicted before the reader reached them, it reads the stored rows; if the events are not stored,
 *      it ends with an error.
 *   5. The reader ends after the end event of its run. After a call to `finish`, it ends at the end of the ring
 *      buffer, with an error if events of the log have not arrived there in time.
 */
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { EventLog, LogPosition } from '../../../infra/event-log/event-log.ts';
import { pause } from '../../../infra/timeouts/backoff.ts';
import { poll } from '../../../infra/timeouts/poll.ts';
import { streamEvents } from '../../../schemas/topics.ts';
import type { AttemptOutcome, StreamPage } from '../../streams/read-streams.ts';
import type { ReadPosition } from './read-position.ts';
import { type BufferedRecord, type Cursor, decodeRecord, type RecordRingBuffer } from './ring-buffer.ts';
import type { StreamedEvent, StreamReader } from './stream-types.ts';

export interface FollowedStream {
  readonly key: string;
  readonly ringBuffer: RecordRingBuffer;
  readonly stored: StoredPositionTracker;
  readonly position: ReadPosition;
  /** Whether to yield stored events before live ones. */
  readonly includesStored: boolean;
  /** The run to read. If undefined, the reader yields the events of all runs of the thread and never ends by itself. */
  readonly runId: string | undefined;
  /** Maximum time to wait until older events are stored. */
  readonly storeTimeoutMs: number;
  /** Maximum time to wait until a gap is filled. */
  readonly gapTimeoutMs: number;
  /** Reads the stored events after the current position. */
  readPage(signal: AbortSignal): Promise<StreamPage>;
  /**
   * Reads the outcome of the event's attempt from the stored events: whether the attempt was superseded or its run has
   * ended.
   */
  readAttemptOutcome(event: StreamedEvent, signal: AbortSignal): Promise<AttemptOutcome | undefined>;
  /**
   * Resolves when this process has received all records that are in the log at the time of the call; with false, if this
   * takes too long or the log is unavailable.
   */
  arrived(signal: AbortSignal): Promise<boolean>;
  /** Called once, when the reader is closed. */
  onClosed(): void;
}

/** Missing sequence numbers after the current position. */
interface Gap {
  readonly sinceMs: number;
  /**
   * Outcome of the attempt whose events are missing: whether it has ended or was superseded; undefined if this is
   * unknown.
   */
  outcome: AttemptOutcome | undefined;
}

const minPauseMs = 50;
const maxPauseMs = 1_000;

export class StreamSubscription implements StreamReader {
  readonly #stream: FollowedStream;
  readonly #cursor: Cursor;
  readonly #closing = new AbortController();
  #wake: () => void = () => {};
  #isFinishing = false;
  /** Whether the events that were in the log when the reader began to finish have arrived. */
  #hasArrived = false;
  /** Whether the reader has yielded the end event of its run. */
  #hasEnded = false;
  /** Whether the next event comes from the ring buffer, and not from stored rows. */
  #isReadingRecords = false;
  /** The gap before the next event, if any. */
  #gap: Gap | undefined;

  constructor(stream: FollowedStream) {
    this.#stream = stream;
    const { ringBuffer, key, runId } = stream;
    const matches = (record: { readonly runId: string }) => runId === undefined || record.runId === runId;
    this.#cursor = ringBuffer.attach(key, matches, () => this.#wake());
  }

  close(): void {
    if (this.#closing.signal.aborted) return;
    this.#closing.abort();
    this.#stream.ringBuffer.detach(this.#stream.key, this.#cursor);
    this.#stream.onClosed();
    this.#wake();
  }

  async finish(): Promise<void> {
    this.#hasArrived = await this.#stream.arrived(this.#closing.signal);
    this.#isFinishing = true;
    this.#wake();
  }

  ready(): StreamedEvent | undefined {
    if (!this.#isReadingRecords || this.#closed || this.#cursor.missed !== 'nothing') return undefined;
    const event = this.#nextRecorded();
    return event === 'gap' ? undefined : event;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<StreamedEvent, void, undefined> {
    try {
      for await (const event of this.#follow()) {
        if (this.#closed) return;
        yield event;
        if (this.#hasEnded) return;
      }
    } catch (error) {
      if (!this.#closed) throw error;
    } finally {
      this.close();
    }
  }

  get #closed(): boolean {
    return this.#closing.signal.aborted;
  }

  async *#follow(): AsyncGenerator<StreamedEvent, void, undefined> {
    const { position, includesStored } = this.#stream;
    if (includesStored) yield* this.#readStored();
    while (!this.#closed) {
      if (this.#cursor.missed !== 'nothing') {
        // Step 4 of the header comment: records were evicted before the reader reached them.
        if (this.#cursor.missed === 'lost' || !position.isPositionKnown) throw runlakeError('STREAM_READER_TOO_SLOW');
        yield* this.#readStored();
        continue;
      }
      const event = this.#nextRecorded();
      if (event === 'gap') {
        yield* this.#resolveGapBeforeRecord();
      } else if (event !== undefined) {
        this.#isReadingRecords = true;
        yield event;
        this.#isReadingRecords = false;
        if (this.#hasEnded) return;
      } else if (this.#isFinishing) {
        // The last events are missing.
        if (!this.#hasArrived) throw runlakeError('STREAM_INCOMPLETE');
        return;
      } else {
        await new Promise<void>((wake) => {
          this.#wake = wake;
        });
      }
    }
  }

  /**
   * Step 2 of the header comment: reads the next event from the ring buffer and advances the cursor. Returns undefined
   * at the end of the buffer.
   */
  #nextRecorded(): StreamedEvent | 'gap' | undefined {
    for (let record = this.#cursor.next; record !== undefined; record = this.#cursor.next) {
      const event = this.#cursor.matches(record) ? decodeRecord(record) : undefined;
      const order = event === undefined ? 'past' : this.#stream.position.classify(event, record.kept);
      if (order === 'gap') return 'gap';
      this.#cursor.next = record.next;
      if (event !== undefined && order === 'next') return this.#advance(event);
    }
    return undefined;
  }

  #advance(event: StreamedEvent): StreamedEvent {
    this.#stream.position.advanceTo(event);
    this.#gap = undefined;
    this.#hasEnded = event.isEnd && this.#stream.runId !== undefined;
    return event;
  }

  /**
   * Step 1 of the header comment: yields stored events that precede the ring buffer. Afterwards the cursor points to
   * the thread's oldest record in the ring buffer.
   */
  async *#readStored(): AsyncGenerator<StreamedEvent, void, undefined> {
    const { ringBuffer, key, stored, storeTimeoutMs, position } = this.#stream;
    for (let nextEvent: StreamedEvent | undefined; !this.#closed; ) {
      ringBuffer.rewind(key, this.#cursor);
      const { floor } = ringBuffer;
      const { unreadEnds } = position;
      const isBufferContiguous = this.#isBufferContiguous();
      if (isBufferContiguous && unreadEnds.length === 0) return;
      if (!(await stored.waitUntilStored(floor, storeTimeoutMs, this.#closing.signal))) {
        if (this.#closed) return;
        throw runlakeError('STREAM_INCOMPLETE');
      }
      nextEvent = yield* this.#readRows(isBufferContiguous ? unreadEnds : undefined);
      if (nextEvent === undefined) return;
      yield* this.#resolveGap(nextEvent, true);
    }
  }

  /**
   * Yields stored rows up to a gap.
   *
   * @param onlyEnds numbers of the ends to read. Default: all events that were not read.
   * @returns the event after the gap; undefined if there is no gap.
   */
  async *#readRows(onlyEnds?: readonly number[]): AsyncGenerator<StreamedEvent, StreamedEvent | undefined, undefined> {
    for (let hasMore = true; hasMore && !this.#closed; ) {
      const page = await this.#stream.readPage(this.#closing.signal);
      for (const row of page.rows) {
        // Ends of earlier runs come first. The buffer has the events after them, also those that are not kept.
        if (onlyEnds?.includes(row.threadSeq) === false) return undefined;
        const order = this.#stream.position.classify(row, true);
        if (order === 'gap') return row;
        if (order === 'next') yield this.#advance(row);
      }
      hasMore = page.more;
    }
    return undefined;
  }

  /** Whether the first matching record of the ring buffer directly follows the current position. */
  #isBufferContiguous(): boolean {
    // `kept` affects only whether the result is `next` or `gap`, and both are handled alike here.
    for (const event of this.#unreadEvents()) {
      if (this.#stream.position.classify(event, true) !== 'past') return this.#stream.position.isContiguous(event);
    }
    return false;
  }

  /**
   * Step 3 of the header comment, for a gap before the next buffered record: fills the gap, skips the attempt or waits.
   * The caller then classifies the record again.
   */
  async *#resolveGapBeforeRecord(): AsyncGenerator<StreamedEvent, void, undefined> {
    const record = this.#cursor.next;
    const following = record && decodeRecord(record);
    if (record === undefined || following === undefined) return;
    yield* this.#resolveGap(following, record.kept);
    // Read the stored rows only if the events are stored; other events exist only in the ring buffer.
    if (record.kept && this.#gap !== undefined) yield* this.#readStored();
  }

  /** Yields buffered events that fill the gap. If the gap remains, skips a superseded attempt or waits a short time. */
  async *#resolveGap(following: StreamedEvent, kept: boolean): AsyncGenerator<StreamedEvent, void, undefined> {
    const { position, gapTimeoutMs } = this.#stream;
    for (const event of this.#repeatedEvents()) yield this.#advance(event);
    if (position.classify(following, kept) !== 'gap') return;
    this.#gap ??= { sinceMs: performance.now(), outcome: undefined };
    const gap = this.#gap;
    // The attempt had ended or been superseded before the last read of rows and records, so the missing events will not
    // arrive.
    if (gap.outcome === 'ended') throw runlakeError('STREAM_INCOMPLETE');
    if (gap.outcome === 'superseded') {
      position.skipAttempt(following);
      this.#gap = undefined;
      return;
    }
    gap.outcome =
      this.#outcomeInRecords(following) ??
      (kept ? await this.#stream.readAttemptOutcome(following, this.#closing.signal) : undefined);
    if (gap.outcome === undefined && this.#isFinishing) gap.outcome = 'ended';
    if (gap.outcome !== undefined) return;
    const gapMs = performance.now() - gap.sinceMs;
    if (gapMs > gapTimeoutMs) throw runlakeError('STREAM_INCOMPLETE');
    if (gapMs > 1) await pause(Math.min(Math.max(gapMs, minPauseMs), maxPauseMs));
  }

  /**
   * Yields buffered events that fill the gap: after a failed publish, the writer republishes the failed events and all
   * events after them.
   */
  *#repeatedEvents(): Generator<StreamedEvent, void, undefined> {
    for (const event of this.#unreadEvents()) if (this.#stream.position.isContiguous(event)) yield event;
  }

  #outcomeInRecords({ runId, attempt }: StreamedEvent): AttemptOutcome | undefined {
    for (const event of this.#unreadEvents()) {
      if (event.runId !== runId) continue;
      if (event.attempt > attempt && event.seq === 1) return 'superseded';
      if (event.isEnd) return 'ended';
    }
    return undefined;
  }

  *#unreadEvents(): Generator<StreamedEvent, void, undefined> {
    for (let record = this.#cursor.next; record !== undefined; record = record.next as BufferedRecord | undefined) {
      const event = this.#cursor.matches(record) ? decodeRecord(record) : undefined;
      if (event !== undefined) yield event;
    }
  }
}

const pollIntervalMs = 100;

/**
 * Tracks the log position up to which events are stored in ClickHouse. Concurrent queries for the same position are
 * coalesced.
 */
export class StoredPositionTracker {
  readonly #log: Pick<EventLog, 'isStored'>;
  readonly #known = new Map<string, number>();
  readonly #pending = new Map<string, Promise<boolean>>();

  constructor(log: Pick<EventLog, 'isStored'>) {
    this.#log = log;
  }

  /**
   * Waits until all events before `position` are stored, for at most `timeoutMs`. If the query fails, it is retried.
   *
   * @returns whether the events are stored.
   */
  async waitUntilStored(position: LogPosition, timeoutMs: number, signal: AbortSignal): Promise<boolean> {
    return poll(() => this.#isKnown(position) || this.#query(position), {
      intervalMs: pollIntervalMs,
      timeoutMs,
      signal,
    });
  }

  #isKnown(position: LogPosition): boolean {
    return Object.entries(position).every(([partition, end]) => end <= (this.#known.get(partition) ?? 0));
  }

  #query(position: LogPosition): Promise<boolean> {
    const key = JSON.stringify(position);
    const pending = this.#pending.get(key);
    if (pending) return pending;
    const pendingQuery = this.#log
      .isStored(streamEvents, position)
      .then((stored) => {
        if (stored) this.#remember(position);
        return stored;
      })
      .catch(() => false)
      .finally(() => this.#pending.delete(key));
    this.#pending.set(key, pendingQuery);
    return pendingQuery;
  }

  #remember(position: LogPosition): void {
    for (const [partition, end] of Object.entries(position)) {
      this.#known.set(partition, Math.max(end, this.#known.get(partition) ?? 0));
    }
  }
}
