/**
 * One reader of a run or a thread.
 *
 * Invariant: it gives each event that counts once, in order, with none left out: or it ends with an error that says so. It holds
 * a place in the records that all readers share, no events of its own, so that taking its time costs nobody anything.
 *
 *   1. A reader that begins with what comes now stands at the end of the recent records. Any other goes to their beginning; where
 *      they do not join what it has, it waits until everything older is stored, and reads the stored rows first.
 *   2. It goes on through the recent records, leaves out what it has, and waits for more at their end.
 *   3. A hole, in rows or records: they are read anew, from where it stands, until the hole is filled or the time for it is over. It is
 *      not waited for where another attempt at the run has begun, since what comes then does not count: the attempt is left where the
 *      hole is. Nor where the run has ended, which is an error. Both are looked at once more after that is known.
 *   4. Records left before it took them: where they are stored it reads rows again, else it was too slow.
 *   5. It ends after the end of its run; when told that nothing is to come, at the end of the recent records.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { fault } from '../../../infra/errors/runlake-error.ts';
import type { AttemptFate } from '../../streams/read-attempt-fate.ts';
import type { StreamPage } from '../../streams/stream-page.ts';
import type { ReadingPlace } from './reading-place.ts';
import { type Cursor, eventOf, type RecentRecord, type RecentRecords } from './recent-records.ts';
import type { StoredWatch } from './stored-watch.ts';
import type { StreamedEvent, StreamReader } from './stream-ports.ts';

export interface FollowedStream {
  readonly key: string;
  readonly recent: RecentRecords;
  readonly stored: StoredWatch;
  readonly place: ReadingPlace;
  /** Whether stored events are wanted before those that come. */
  readonly fromStored: boolean;
  /** Of which run; `undefined`: of all of the thread, and it never ends by itself. */
  readonly runId: string | undefined;
  /** How long storing is waited for. */
  readonly patienceMs: number;
  /** How long a hole is waited for. */
  readonly holePatienceMs: number;
  /** The stored events after the place. */
  readPage(signal: AbortSignal): Promise<StreamPage>;
  /** What is stored of the fate of the attempt that the event is of. */
  fateOf(event: StreamedEvent, signal: AbortSignal): Promise<AttemptFate | undefined>;
  /** Resolves when everything that is in the log now has arrived here. */
  arrived(signal: AbortSignal): Promise<void>;
  /** Called once. */
  onClosed(): void;
}

/** What is missing after the place of a reader. */
interface Hole {
  readonly sinceMs: number;
  /** Of the attempt that it is in. */
  fate: AttemptFate | undefined;
}

const firstPauseMs = 50;
const longestPauseMs = 1_000;

export class FollowingReader implements StreamReader {
  readonly #stream: FollowedStream;
  readonly #cursor: Cursor;
  readonly #closing = new AbortController();
  #wake: () => void = () => {};
  #nothingFollows = false;
  /** Gave the end of its run. */
  #ended = false;
  /** Whether what it gives next is in the records: not while it gives stored rows. */
  #isAmongRecords = false;
  /** Where it stands before one. */
  #hole: Hole | undefined;

  constructor(stream: FollowedStream) {
    this.#stream = stream;
    const { recent, key, runId } = stream;
    const wants = (record: { readonly runId: string }) => runId === undefined || record.runId === runId;
    this.#cursor = recent.attach(key, wants, () => this.#wake());
  }

  close(): void {
    if (this.#closing.signal.aborted) return;
    this.#closing.abort();
    this.#stream.recent.detach(this.#stream.key, this.#cursor);
    this.#stream.onClosed();
    this.#wake();
  }

  async finish(): Promise<void> {
    await this.#stream.arrived(this.#closing.signal);
    this.#nothingFollows = true;
    this.#wake();
  }

  ready(): StreamedEvent | undefined {
    if (!this.#isAmongRecords || this.#closed || this.#cursor.missed !== 'nothing') return undefined;
    const event = this.#nextRecorded();
    return event === 'hole' ? undefined : event;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<StreamedEvent, void, undefined> {
    try {
      for await (const event of this.#follow()) {
        if (this.#closed) return;
        yield event;
        if (this.#ended) return;
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
    const { place, fromStored } = this.#stream;
    if (fromStored) yield* this.#goBack();
    while (!this.#closed) {
      if (this.#cursor.missed !== 'nothing') {
        // Step 4.
        if (this.#cursor.missed === 'lost' || !place.anchored) throw fault('STREAM_READER_TOO_SLOW');
        yield* this.#goBack();
        continue;
      }
      const event = this.#nextRecorded();
      if (event === 'hole') {
        yield* this.#facingHole();
      } else if (event !== undefined) {
        this.#isAmongRecords = true;
        yield event;
        this.#isAmongRecords = false;
        if (this.#ended) return;
      } else if (this.#nothingFollows) {
        return;
      } else {
        await new Promise<void>((wake) => {
          this.#wake = wake;
        });
      }
    }
  }

  /** Step 2: what comes next in the records, which it has then; `undefined` at their end. */
  #nextRecorded(): StreamedEvent | 'hole' | undefined {
    for (let record = this.#cursor.next; record !== undefined; record = this.#cursor.next) {
      const event = this.#cursor.wants(record) ? eventOf(record) : undefined;
      const verdict = event === undefined ? 'past' : this.#stream.place.judge(event, record.kept);
      if (verdict === 'hole') return 'hole';
      this.#cursor.next = record.next;
      if (event !== undefined && verdict === 'next') return this.#taken(event);
    }
    return undefined;
  }

  #taken(event: StreamedEvent): StreamedEvent {
    this.#stream.place.moveTo(event);
    this.#hole = undefined;
    this.#ended = event.isEnd && this.#stream.runId !== undefined;
    return event;
  }

  /** Step 1, for those that do not begin now: stands before the oldest recent record afterwards. */
  async *#goBack(): AsyncGenerator<StreamedEvent, void, undefined> {
    const { recent, key, stored, patienceMs } = this.#stream;
    for (let behind: StreamedEvent | undefined; !this.#closed; ) {
      recent.rewind(key, this.#cursor);
      const { floor } = recent;
      if (this.#recentJoin()) return;
      if (!(await stored.reached(floor, patienceMs, this.#closing.signal))) {
        if (this.#closed) return;
        throw fault('STREAM_INCOMPLETE');
      }
      behind = yield* this.#readRows();
      if (behind === undefined) return;
      yield* this.#atHole(behind, true);
    }
  }

  /** Gives stored rows up to a hole. @returns the event behind it. */
  async *#readRows(): AsyncGenerator<StreamedEvent, StreamedEvent | undefined, undefined> {
    for (let more = true; more && !this.#closed; ) {
      const page = await this.#stream.readPage(this.#closing.signal);
      for (const row of page.rows) {
        const verdict = this.#stream.place.judge(row, true);
        if (verdict === 'hole') return row;
        if (verdict === 'next') yield this.#taken(row);
      }
      more = page.more;
    }
    return undefined;
  }

  /** Whether the first recent record that is wanted follows directly on what the reader has. */
  #recentJoin(): boolean {
    // Whether an event is kept matters to holes alone.
    for (const event of this.#ahead()) {
      if (this.#stream.place.judge(event, true) !== 'past') return this.#stream.place.joins(event);
    }
    return false;
  }

  /** Step 3, before a record. Where its attempt is passed over, or more came, the record is judged anew. */
  async *#facingHole(): AsyncGenerator<StreamedEvent, void, undefined> {
    const record = this.#cursor.next;
    const behind = record && eventOf(record);
    if (record === undefined || behind === undefined) return;
    yield* this.#atHole(behind, record.kept);
    // What is not kept is nowhere but in the records.
    if (record.kept && this.#hole !== undefined) yield* this.#goBack();
  }

  /** Gives what fills the hole, or passes the attempt over; or waits a little. */
  async *#atHole(behind: StreamedEvent, kept: boolean): AsyncGenerator<StreamedEvent, void, undefined> {
    const { place, holePatienceMs } = this.#stream;
    for (const event of this.#sentAgain()) yield this.#taken(event);
    if (place.judge(behind, kept) !== 'hole') return;
    this.#hole ??= { sinceMs: performance.now(), fate: undefined };
    const hole = this.#hole;
    // It was known before rows and records were looked through once more: what is missing does not come.
    if (hole.fate === 'ended') throw fault('STREAM_INCOMPLETE');
    if (hole.fate === 'superseded') {
      place.passOver(behind);
      this.#hole = undefined;
      return;
    }
    hole.fate =
      this.#fateInRecords(behind) ?? (kept ? await this.#stream.fateOf(behind, this.#closing.signal) : undefined);
    if (hole.fate === undefined && this.#nothingFollows) hole.fate = 'ended';
    if (hole.fate !== undefined) return;
    const forMs = performance.now() - hole.sinceMs;
    if (forMs > holePatienceMs) throw fault('STREAM_INCOMPLETE');
    if (forMs > 1) await pause(Math.min(Math.max(forMs, firstPauseMs), longestPauseMs));
  }

  /** What is missing, where it came later: whoever writes sends it again with all that stood behind it. */
  *#sentAgain(): Generator<StreamedEvent, void, undefined> {
    for (const event of this.#ahead()) if (this.#stream.place.joins(event)) yield event;
  }

  #fateInRecords({ runId, attempt }: StreamedEvent): AttemptFate | undefined {
    for (const event of this.#ahead()) {
      if (event.runId !== runId) continue;
      if (event.attempt > attempt && event.seq === 1) return 'superseded';
      if (event.isEnd) return 'ended';
    }
    return undefined;
  }

  *#ahead(): Generator<StreamedEvent, void, undefined> {
    for (let record = this.#cursor.next; record !== undefined; record = record.next as RecentRecord | undefined) {
      const event = this.#cursor.wants(record) ? eventOf(record) : undefined;
      if (event !== undefined) yield event;
    }
  }
}
