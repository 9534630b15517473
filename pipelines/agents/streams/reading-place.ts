import { endSeq, seqOf, startOf, threadSeqOf } from './stream-numbers.ts';
import type { RunReadFrom, StreamedEvent, ThreadReadFrom } from './stream-ports.ts';

/** What an event is to a reader: the next one, one that it has or does not want, or one before which some are missing. */
export type Verdict = 'next' | 'past' | 'hole';

/** How far a reader has come in what it reads. */
export interface ReadingPlace {
  /** Whether it is known what comes next: not before the first event of a reader that began with what comes now. */
  readonly anchored: boolean;
  /**
   * Of an event that is not kept `hole` only where what is missing should have come while the reader was there: what came before is not
   * to be had.
   */
  judge(event: StreamedEvent, kept: boolean): Verdict;
  /** Whether nothing can be missing before the event. */
  joins(event: StreamedEvent): boolean;
  moveTo(event: StreamedEvent): void;
  /** What the attempt of the event wrote is past from here on: another attempt takes its place. */
  passOver(event: StreamedEvent): void;
}

/** In a run: by attempt and number. Its end has the highest number and joins whatever came before. */
export class PlaceInRun implements ReadingPlace {
  anchored: boolean;
  #attempt = 0;
  #seq = 0;
  #passedOver = 0;
  /** Whether it moved: what follows is in the records of this process. */
  #moved = false;

  constructor(from: RunReadFrom) {
    this.anchored = from !== 'now';
    if (typeof from === 'object') [this.#attempt, this.#seq] = [from.attempt, from.seq];
  }

  get after(): { readonly attempt: number; readonly seq: number } {
    return { attempt: this.#attempt, seq: this.#seq };
  }

  judge(event: StreamedEvent, kept: boolean): Verdict {
    const { attempt, seq, isEnd } = event;
    if (attempt < this.#attempt || (attempt === this.#attempt && seq <= this.#seq)) return 'past';
    if (attempt <= this.#passedOver && !isEnd) return 'past';
    const begins = attempt > this.#attempt && seq === 1;
    const missable = !this.anchored || (!kept && !this.#moved);
    return isEnd || begins || missable || this.joins(event) ? 'next' : 'hole';
  }

  joins({ attempt, seq }: StreamedEvent): boolean {
    if (this.#attempt === 0) return attempt === 1 && seq === 1;
    return attempt === this.#attempt && seq === this.#seq + 1;
  }

  moveTo({ attempt, seq }: StreamedEvent): void {
    [this.#attempt, this.#seq, this.anchored, this.#moved] = [attempt, seq, true, true];
  }

  passOver({ attempt }: StreamedEvent): void {
    this.#passedOver = attempt;
  }
}

/** Starts of a thread whose ends a reader still waits for; more than one only where an end is late. */
const mostOpenStarts = 16;

/**
 * In a thread: by the number there. The end of a run may come after the beginning of the next one, since the next is free to
 * start before the end is published; it counts where events of its attempt were read.
 */
export class PlaceInThread implements ReadingPlace {
  anchored: boolean;
  #threadSeq = 0;
  #passedOver = 0;
  /** Whether it moved: what follows of the start that it stands in is in the records of this process. */
  #moved = false;
  readonly #openStarts = new Set<number>();

  constructor(from: ThreadReadFrom) {
    this.anchored = from !== 'now';
    if (typeof from === 'object') {
      this.#threadSeq = Math.max(0, from.threadSeq);
      if (from.threadSeq > 0 && seqOf(from.threadSeq) !== endSeq) this.#openStarts.add(startOf(from.threadSeq));
    }
  }

  get after(): number {
    return this.#threadSeq;
  }

  judge(event: StreamedEvent, kept: boolean): Verdict {
    const { threadSeq, isEnd } = event;
    if (threadSeq <= this.#threadSeq) return isEnd && this.#openStarts.has(startOf(threadSeq)) ? 'next' : 'past';
    const [start, standsIn] = [startOf(threadSeq), startOf(this.#threadSeq)];
    if (start <= this.#passedOver && !isEnd) return 'past';
    const begins = start > standsIn && seqOf(threadSeq) === 1;
    // The beginning of the oldest run that is kept may have expired.
    const first = !this.anchored || this.#threadSeq === 0;
    const missable = first || (!kept && !(this.#moved && start === standsIn));
    return isEnd || begins || missable || this.joins(event) ? 'next' : 'hole';
  }

  joins({ threadSeq }: StreamedEvent): boolean {
    return threadSeq === (this.#threadSeq === 0 ? threadSeqOf(1, 1) : this.#threadSeq + 1);
  }

  moveTo({ threadSeq, isEnd }: StreamedEvent): void {
    const start = startOf(threadSeq);
    if (isEnd) this.#openStarts.delete(start);
    else this.#openStarts.add(start);
    if (this.#openStarts.size > mostOpenStarts)
      for (const open of this.#openStarts) {
        this.#openStarts.delete(open);
        break;
      }
    this.#threadSeq = Math.max(this.#threadSeq, threadSeq);
    this.anchored = true;
    this.#moved = true;
  }

  passOver({ threadSeq }: StreamedEvent): void {
    this.#passedOver = startOf(threadSeq);
  }
}
