/**
 * Divides long work into time slices, so that the event loop runs in between.
 *
 * Invariant: all such work together blocks a turn of the event loop for about one time slice, however many requests have
 * such work at once. The sink is the exception ({@link openSlices}).
 *
 *   1. The time slice of a turn begins with the first step of the turn, and the steps of all work share it.
 *   2. Work that does not end within the time slice waits. Each turn resumes the work that has waited longest.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';

/** Maximum time for which work may block the event loop, provided that its steps are short. */
const sliceMs = 10;

const waiting: (() => void)[] = [];
/** Unset if nothing has used the time slice of this turn. */
let sliceStartedMs: number | undefined;

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

/** Number of small items, such as rows, that a step of long work processes. */
export const itemsPerStep = 1_000;

/** Sorts items as `sort` of arrays does, in steps: parts of the list, which are then merged. */
export function* sortInSteps<Item>(
  items: readonly Item[],
  compare: (one: Item, other: Item) => number,
): StepwiseWork<Item[]> {
  let parts: Item[][] = [];
  for (let at = 0; at < items.length; at += itemsPerStep) {
    parts.push(items.slice(at, at + itemsPerStep).sort(compare));
    yield;
  }
  while (parts.length > 1) {
    const merged: Item[][] = [];
    for (let at = 0; at < parts.length; at += 2)
      merged.push(yield* merge(parts[at] ?? [], parts[at + 1] ?? [], compare));
    parts = merged;
  }
  return parts[0] ?? [];
}

function* merge<Item>(
  left: readonly Item[],
  right: readonly Item[],
  compare: (one: Item, other: Item) => number,
): StepwiseWork<Item[]> {
  const merged: Item[] = [];
  let [atLeft, atRight] = [0, 0];
  while (atLeft < left.length || atRight < right.length) {
    if (merged.length % itemsPerStep === 0) yield;
    const isLeft =
      atRight === right.length || (atLeft < left.length && compare(left[atLeft] as Item, right[atRight] as Item) <= 0);
    merged.push((isLeft ? left[atLeft] : right[atRight]) as Item);
    if (isLeft) atLeft += 1;
    else atRight += 1;
  }
  return merged;
}

/**
 * Called between the steps of long work in an asynchronous function. If the time slice of this turn is over, returns a
 * promise that resolves in a later turn of the event loop.
 */
export function endSlice(): Promise<void> | undefined {
  return performance.now() - startSlice() < sliceMs ? undefined : new Promise((resolve) => runInLaterTurn(resolve));
}

/**
 * Returns a function like {@link endSlice} for the work of the sink. It has time slices of its own and continues in the
 * next turn instead of waiting for other long work: it must keep up with what requests send.
 */
export function openSlices(): typeof endSlice {
  let startedMs = performance.now();
  return () =>
    performance.now() - startedMs < sliceMs
      ? undefined
      : nextTurn().then(() => {
          startedMs = performance.now();
        });
}

/** Calls `work` in a later turn, in which no other work that has waited is resumed. */
export function runInLaterTurn(work: () => void): void {
  waiting.push(work);
  startSlice();
}

/** Returns the start of the time slice of this turn. */
function startSlice(): number {
  if (sliceStartedMs === undefined) {
    sliceStartedMs = performance.now();
    setImmediate(endTurn);
  }
  return sliceStartedMs;
}

function endTurn(): void {
  sliceStartedMs = undefined;
  const next = waiting.shift();
  if (next === undefined) return;
  startSlice();
  next();
}
