/**
 * How the events of a thread are numbered. Those of one attempt count from 1; its end has the last number there is, because
 * whoever publishes it may not know how many came before. A thread numbers the attempts at its runs, `threadStart`, from 1.
 */

const numbersOfStart = 2 ** 32;
export const endSeq = numbersOfStart - 1;

/** Number in the thread. Exact in a double, and in the log, for half a million starts of one thread. */
export function threadSeqOf(threadStart: number, seq: number): number {
  return threadStart * numbersOfStart + seq;
}

export function startOf(threadSeq: number): number {
  return Math.floor(threadSeq / numbersOfStart);
}

export function seqOf(threadSeq: number): number {
  return threadSeq % numbersOfStart;
}
