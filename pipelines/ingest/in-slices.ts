import { endSlice } from '../../infra/timeouts/time-slices.ts';

/** Work that may be interrupted at each `yield` and returns its result at the end. */
export type StepwiseWork<Result> = Generator<void, Result, void>;

/**
 * Runs long work in time slices and lets the event loop run in between, so that other requests are not blocked. All work
 * shares the time slice of a turn, so short work may also complete in a later turn.
 */
export async function runInTimeSlices<Result>(work: StepwiseWork<Result>): Promise<Result> {
  for (;;) {
    const step = work.next();
    if (step.done) return step.value;
    const turn = endSlice();
    if (turn) await turn;
  }
}
