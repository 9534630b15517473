import type { StepwiseWork } from '../../../infra/timeouts/time-slices.ts';

/** Runs stepwise work without interruption. */
export function runToCompletion<Result>(work: StepwiseWork<Result>): Result {
  for (;;) {
    const step = work.next();
    if (step.done) return step.value;
  }
}
