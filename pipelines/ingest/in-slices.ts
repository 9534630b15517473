import { setImmediate as nextTurn } from 'node:timers/promises';

/** Work that may be interrupted at each `yield` and returns its result at the end. */
export type StepwiseWork<Result> = Generator<void, Result, void>;

/** Maximum time for which work may block the event loop, provided that its steps are short. */
const sliceMs = 10;

/**
 * Runs long work in time slices and lets the event loop run in between, so that other requests are not blocked. Work
 * that is shorter than a time slice completes at once.
 */
export async function runInTimeSlices<Result>(work: StepwiseWork<Result>): Promise<Result> {
  const endSlice = createTimeSlices();
  for (;;) {
    const step = work.next();
    if (step.done) return step.value;
    const turn = endSlice();
    if (turn) await turn;
  }
}

/**
 * For long work in an asynchronous function. Returns a function to be called between its steps: if the time slice is
 * over, it returns a promise that resolves after the event loop has run.
 */
export function createTimeSlices(): () => Promise<void> | undefined {
  let sinceMs = performance.now();
  const runEventLoop = async () => {
    await nextTurn();
    sinceMs = performance.now();
  };
  return () => (performance.now() - sinceMs < sliceMs ? undefined : runEventLoop());
}

/** Runs stepwise work without interruption, for callers whose process has no other work. */
export function runToCompletion<Result>(work: StepwiseWork<Result>): Result {
  for (;;) {
    const step = work.next();
    if (step.done) return step.value;
  }
}
