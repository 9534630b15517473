import { setImmediate as nextTurn } from 'node:timers/promises';

/** Work that can be left alone at each `yield`, and gives a result at its end. */
export type StepwiseWork<Result> = Generator<void, Result, void>;

/** Longest time for which one piece of work keeps the event loop, when its steps are short. */
const sliceMs = 10;

/**
 * Does long work that others must not have to wait for: after each slice of time the event loop has a turn, so that other
 * requests go on being answered. Work shorter than a slice is done at once.
 */
export async function inSlices<Result>(work: StepwiseWork<Result>): Promise<Result> {
  let sinceMs = performance.now();
  for (;;) {
    const step = work.next();
    if (step.done) return step.value;
    if (performance.now() - sinceMs < sliceMs) continue;
    await nextTurn();
    sinceMs = performance.now();
  }
}

/** Does the same work without a pause, for callers that share the process with nobody. */
export function atOnce<Result>(work: StepwiseWork<Result>): Result {
  for (;;) {
    const step = work.next();
    if (step.done) return step.value;
  }
}
