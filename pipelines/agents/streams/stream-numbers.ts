/**
 * Sequence numbers of events. The events of an attempt are numbered from 1. The end has the maximum number, because
 * another process may publish it without knowing the number of events. A thread numbers the attempts of its runs
 * (`threadStart`) from 1.
 */

const numbersPerStart = 2 ** 32;
export const endSeq = numbersPerStart - 1;

/**
 * Returns the sequence number in the thread. A double and the log represent it exactly for up to half a million starts
 * in a thread.
 */
export function toThreadSeq(threadStart: number, seq: number): number {
  return threadStart * numbersPerStart + seq;
}

export function toStart(threadSeq: number): number {
  return Math.floor(threadSeq / numbersPerStart);
}

export function toSeq(threadSeq: number): number {
  return threadSeq % numbersPerStart;
}
