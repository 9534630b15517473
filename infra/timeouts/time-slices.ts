import { setImmediate as nextTurn } from 'node:timers/promises';

/** Maximum time for which work may block the event loop, provided that its steps are short. */
const sliceMs = 10;

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
