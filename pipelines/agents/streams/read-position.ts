import {
  endSeq,
  type RunReadStart,
  type StreamedEvent,
  type ThreadReadStart,
  toSeq,
  toThreadSeq,
  toThreadStart,
} from './stream-types.ts';

/** Relation of an event to a reader's position: the next event, an event to skip, or an event after a gap. */
export type EventOrder = 'next' | 'past' | 'gap';

/** The position of a reader in its stream. */
export interface ReadPosition {
  /** Whether the next sequence number is known. False for a reader from `now` before its first event. */
  readonly isPositionKnown: boolean;
  /**
   * Compares the event with the position. Before a non-resumable event, missing events count as a gap only if they were
   * published after the reader attached; earlier events are not available anywhere.
   */
  classify(event: StreamedEvent, kept: boolean): EventOrder;
  /** Returns true if no event can be missing before this event. */
  isContiguous(event: StreamedEvent): boolean;
  advanceTo(event: StreamedEvent): void;
  /** Skips all further events of the attempt except the end, because a newer attempt replaces it. */
  skipAttempt(event: StreamedEvent): void;
}

/** Position in a run: attempt and sequence number. The end event has the maximum number and follows any event. */
export class RunPosition implements ReadPosition {
  isPositionKnown: boolean;
  #attempt = 0;
  #seq = 0;
  #skippedUpTo = 0;
  /** Whether the position has advanced, so that later events are in the ring buffer of this process. */
  #hasAdvanced = false;

  constructor(from: RunReadStart) {
    this.isPositionKnown = from !== 'now';
    if (typeof from === 'object') [this.#attempt, this.#seq] = [from.attempt, from.seq];
  }

  get after(): { readonly attempt: number; readonly seq: number } {
    return { attempt: this.#attempt, seq: this.#seq };
  }

  classify(event: StreamedEvent, kept: boolean): EventOrder {
    const { attempt, seq, isEnd } = event;
    if (attempt < this.#attempt || (attempt === this.#attempt && seq <= this.#seq)) return 'past';
    if (attempt <= this.#skippedUpTo && !isEnd) return 'past';
    const isFirstOfAttempt = attempt > this.#attempt && seq === 1;
    const canMissEvents = !this.isPositionKnown || (!kept && !this.#hasAdvanced);
    return isEnd || isFirstOfAttempt || canMissEvents || this.isContiguous(event) ? 'next' : 'gap';
  }

  isContiguous({ attempt, seq }: StreamedEvent): boolean {
    if (this.#attempt === 0) return attempt === 1 && seq === 1;
    return attempt === this.#attempt && seq === this.#seq + 1;
  }

  advanceTo({ attempt, seq }: StreamedEvent): void {
    [this.#attempt, this.#seq, this.isPositionKnown, this.#hasAdvanced] = [attempt, seq, true, true];
  }

  skipAttempt({ attempt }: StreamedEvent): void {
    this.#skippedUpTo = attempt;
  }
}

/** Maximum number of unfinished starts that a reader remembers. There are several only if an end arrives late. */
const maxOpenStarts = 16;

/**
 * Position in a thread: the sequence number of the thread. The end of a run may arrive after the first events of the
 * next run, which may start before that end is published. Such an end is yielded only if the reader has yielded events
 * of its attempt.
 */
export class ThreadPosition implements ReadPosition {
  isPositionKnown: boolean;
  readonly #earlierStarts: number;
  #threadSeq: number;
  /** Whether the reader starts before the first event of the thread and has not advanced. */
  #isAtBeginning: boolean;
  #skippedUpTo = 0;
  /** Whether the position has advanced, so that later events of the same start are in the ring buffer of this process. */
  #hasAdvanced = false;
  readonly #openStarts = new Set<number>();

  /** @param earlierStarts number of starts of deleted threads with the same id; the reader skips their events. */
  constructor(from: ThreadReadStart, earlierStarts = 0) {
    const beginning = toThreadSeq(earlierStarts, endSeq);
    this.isPositionKnown = from !== 'now';
    this.#earlierStarts = earlierStarts;
    this.#isAtBeginning = typeof from === 'string' || from.threadSeq < beginning;
    this.#threadSeq = typeof from === 'string' || this.#isAtBeginning ? beginning : from.threadSeq;
    for (const start of (typeof from === 'object' && from.openStarts) || []) this.#openStarts.add(start);
    if (toSeq(this.#threadSeq) !== endSeq) this.#openStarts.add(toThreadStart(this.#threadSeq));
  }

  get after(): number {
    return this.#threadSeq;
  }

  classify(event: StreamedEvent, kept: boolean): EventOrder {
    const { threadSeq, isEnd } = event;
    if (threadSeq <= this.#threadSeq) return isEnd && this.#openStarts.has(toThreadStart(threadSeq)) ? 'next' : 'past';
    const [start, currentStart] = [toThreadStart(threadSeq), toThreadStart(this.#threadSeq)];
    if (start <= this.#skippedUpTo && !isEnd) return 'past';
    const isFirstOfStart = start > currentStart && toSeq(threadSeq) === 1;
    // The first events of the oldest stored run may have expired.
    const canMissEvents = this.#isAtBeginning || (!kept && !(this.#hasAdvanced && start === currentStart));
    return isEnd || isFirstOfStart || canMissEvents || this.isContiguous(event) ? 'next' : 'gap';
  }

  isContiguous({ threadSeq }: StreamedEvent): boolean {
    return threadSeq === (this.#isAtBeginning ? toThreadSeq(this.#earlierStarts + 1, 1) : this.#threadSeq + 1);
  }

  advanceTo({ threadSeq, isEnd }: StreamedEvent): void {
    const start = toThreadStart(threadSeq);
    if (isEnd) this.#openStarts.delete(start);
    else this.#openStarts.add(start);
    if (this.#openStarts.size > maxOpenStarts)
      for (const open of this.#openStarts) {
        this.#openStarts.delete(open);
        break;
      }
    this.#threadSeq = Math.max(this.#threadSeq, threadSeq);
    this.isPositionKnown = true;
    this.#isAtBeginning = false;
    this.#hasAdvanced = true;
  }

  skipAttempt({ threadSeq }: StreamedEvent): void {
    this.#skippedUpTo = toThreadStart(threadSeq);
  }
}
