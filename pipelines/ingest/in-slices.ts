import { createTimeSlices } from '../../infra/timeouts/time-slices.ts';

/** Work that may be interrupted at each `yield` and returns its result at the end. */
export type StepwiseWork<Result> = Generator<void, Result, void>;

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
