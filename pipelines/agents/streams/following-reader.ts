/**
 * One reader of a run or a thread.
 *
 * Invariant: it gives each event that counts once, in order, with none left out: or it ends with an error that says so. It holds
 * a place in the records that all readers share, no events of its own, so that taking its time costs nobody anything.
 *
 *   1. A reader that begins with what comes now stands at the end of the recent records. Any other goes to their beginning; where
 *      they do not join what it has, it waits until everything older is stored, and reads the stored rows first.
 *   2. It goes on through the recent records, leaves out what it has, and waits for more at their end.
 *   3. A hole, in rows or records: they are read anew, from where it stands, until the hole is filled or the time for it is over.
 *   4. Records left before it took them: where they are stored it reads rows again, else it was too slow.
 *   5. It ends after the end of its run; when told that nothing is to come, at the end of the recent records.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { fault } from '../../../infra/errors/runlake-error.ts';
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
  /** How long a hole is waited for. */
  readonly patienceMs: number;
  /** The stored events after the place. */
  readPage(signal: AbortSignal): Promise<StreamPage>;
  /** Resolves when everything that is in the log now has arrived here. */
  arrived(signal: AbortSignal): Promise<void>;
  /** Called once. */
  onClosed(): void;
}

const firstPauseMs = 50;
const longestPauseMs = 1_000;

export class FollowingReader implements StreamReader {
  readonly #stream: FollowedStream;
  readonly #cursor: Cursor;
  readonly #closing = new AbortController();
  #wake: () => void = () => {};
  #nothingFollows = false;
  #holeSinceMs: number | undefined;

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

  async *[Symbol.asyncIterator](): AsyncGenerator<StreamedEvent, void, undefined> {
    try {
      for await (const event of this.#follow()) {
        if (this.#closed) return;
        yield event;
        if (event.isEnd && this.#stream.runId !== undefined) return;
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
      const record = this.#cursor.next;
      if (record === undefined) {
        if (this.#holeSinceMs !== undefined) yield* this.#fillHole(this.#holeSinceMs);
        else if (this.#nothingFollows) return;
        else
          await new Promise<void>((wake) => {
            this.#wake = wake;
          });
        continue;
      }
      this.#cursor.next = record.next;
      const event = this.#cursor.wants(record) ? eventOf(record) : undefined;
      if (event === undefined) continue;
      const verdict = place.judge(event, record.kept);
      if (verdict === 'next') yield this.#taken(event);
      else if (verdict === 'hole') yield* this.#fillHole(this.#holeSinceMs ?? performance.now());
    }
  }

  #taken(event: StreamedEvent): StreamedEvent {
    this.#stream.place.moveTo(event);
    this.#holeSinceMs = undefined;
    return event;
  }

  /** Step 1, for those that do not begin now: stands before the oldest recent record afterwards. */
  async *#goBack(): AsyncGenerator<StreamedEvent, void, undefined> {
    const { recent, key, stored, patienceMs, place } = this.#stream;
    recent.rewind(key, this.#cursor);
    const { floor } = recent;
    if (this.#recentJoin()) return;
    if (!(await stored.reached(floor, patienceMs, this.#closing.signal))) {
      if (this.#closed) return;
      throw fault('STREAM_INCOMPLETE');
    }
    for (let more = true; more && !this.#closed; ) {
      const page = await this.#stream.readPage(this.#closing.signal);
      for (const row of page.rows) {
        const verdict = place.judge(row, true);
        if (verdict === 'past') continue;
        if (verdict === 'hole') {
          this.#holeSinceMs ??= performance.now();
          return;
        }
        yield this.#taken(row);
      }
      more = page.more;
    }
  }

  /** Whether the first recent record that is wanted follows directly on what the reader has. */
  #recentJoin(): boolean {
    for (let record = this.#cursor.next; record !== undefined; record = record.next as RecentRecord | undefined) {
      const event = this.#cursor.wants(record) ? eventOf(record) : undefined;
      if (event === undefined || this.#stream.place.judge(event, record.kept) === 'past') continue;
      return this.#stream.place.joins(event);
    }
    return false;
  }

  /** Step 3. */
  async *#fillHole(sinceMs: number): AsyncGenerator<StreamedEvent, void, undefined> {
    const forMs = performance.now() - sinceMs;
    if (forMs > this.#stream.patienceMs) throw fault('STREAM_INCOMPLETE');
    this.#holeSinceMs = sinceMs;
    if (forMs > 1) await pause(Math.min(Math.max(forMs, firstPauseMs), longestPauseMs));
    yield* this.#goBack();
  }
}
