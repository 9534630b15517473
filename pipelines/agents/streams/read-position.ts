import { stateUpdateMode } from './publish-state.ts';
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

export interface ReadPosition {
  /** Whether the next sequence number is known. False for a reader from `now` before its first event. */
  readonly isPositionKnown: boolean;
  /** Thread sequence numbers of the ends of earlier runs that were not read. */
  readonly unreadEnds: readonly number[];
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
  readonly unreadEnds = [];
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

/** The starts of a thread of which events were read, but not the end. */
export class OpenStarts implements Iterable<number> {
  /** Run ids by start; undefined for a start that was read before a reader was attached. */
  readonly #runIds = new Map<number, string | undefined>();

  /** @param from where the reader starts. `earlierStarts`: starts of deleted threads, which are ignored. */
  constructor(from: ThreadReadStart, earlierStarts = 0) {
    if (typeof from === 'string') return;
    const { threadSeq, openStarts = [] } = from;
    const current = toSeq(threadSeq) === endSeq ? [] : [toThreadStart(threadSeq)];
    for (const start of [...openStarts, ...current]) if (start > earlierStarts) this.#add(start, undefined);
  }

  [Symbol.iterator](): Iterator<number> {
    return this.#runIds.keys();
  }

  has(start: number): boolean {
    return this.#runIds.has(start);
  }

  /** Records an event that was read. @returns whether it is the end of an open start. */
  record({ threadSeq, isEnd, runId, mode }: StreamedEvent): boolean {
    const start = toThreadStart(threadSeq);
    if (isEnd) return this.#runIds.delete(start);
    // A state update has a start of its own, but no end.
    if (mode === stateUpdateMode || this.#runIds.has(start)) return false;
    // Only the last attempt of a run has an end.
    for (const [earlier, id] of this.#runIds) if (id === runId) this.#runIds.delete(earlier);
    this.#add(start, runId);
    return false;
  }

  #add(start: number, runId: string | undefined): void {
    this.#runIds.set(start, runId);
    const [oldest] = this.#runIds.keys();
    if (this.#runIds.size > maxOpenStarts) this.#runIds.delete(oldest as number);
  }
}

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
  readonly #openStarts: OpenStarts;

  /** @param earlierStarts number of starts of deleted threads with the same id; the reader skips their events. */
  constructor(from: ThreadReadStart, earlierStarts = 0) {
    const beginning = toThreadSeq(earlierStarts, endSeq);
    this.isPositionKnown = from !== 'now';
    this.#earlierStarts = earlierStarts;
    this.#isAtBeginning = typeof from === 'string' || from.threadSeq < beginning;
    this.#threadSeq = typeof from === 'string' || this.#isAtBeginning ? beginning : from.threadSeq;
    this.#openStarts = new OpenStarts(from, earlierStarts);
  }

  get unreadEnds(): readonly number[] {
    const ends = [...this.#openStarts].map((start) => toThreadSeq(start, endSeq));
    return ends.filter((end) => end <= this.#threadSeq);
  }

  /** The events that were not read: those after a number, and the ends of earlier starts. */
  get unread(): { readonly after: number; readonly including: readonly number[] } {
    return { after: this.#threadSeq, including: this.unreadEnds };
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

  advanceTo(event: StreamedEvent): void {
    this.#openStarts.record(event);
    this.#threadSeq = Math.max(this.#threadSeq, event.threadSeq);
    this.isPositionKnown = true;
    this.#isAtBeginning = false;
    this.#hasAdvanced = true;
  }

  skipAttempt({ threadSeq }: StreamedEvent): void {
    this.#skippedUpTo = toThreadStart(threadSeq);
  }
}
