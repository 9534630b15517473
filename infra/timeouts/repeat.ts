import { runWithoutTenant } from '../fairness/tenant-context.ts';

export interface Repeater {
  /** Calls the work as soon as possible. */
  wake(): void;
  /** Aborts the signal of the work. Resolves when the current call has finished. */
  stop(): Promise<void>;
}

export interface RepeatOptions {
  /** Maximum pause between two calls: notifications can be lost, and the clock of the database can be set. */
  readonly maxPauseMs: number;
  /** Called with errors of the work, except those after `stop`. The next call follows after `maxPauseMs`. */
  readonly onFailure: (error: unknown) => void;
}

/**
 * Calls `work` now, after each `wake` and at least every `maxPauseMs`. Calls do not overlap: a `wake` during a call
 * causes one more call.
 *
 * @param work can return the milliseconds until the next call, if these are less.
 */
export function startRepeating(
  work: (signal: AbortSignal) => Promise<number | undefined> | Promise<void>,
  { maxPauseMs, onFailure }: RepeatOptions,
): Repeater {
  const stopping = new AbortController();
  const { signal } = stopping;
  let isStale = false;
  let current: Promise<void> | undefined;
  let timer: NodeJS.Timeout | undefined;

  async function runUntilIdle(): Promise<void> {
    let nextMs: number | undefined;
    do {
      isStale = false;
      clearTimeout(timer);
      try {
        nextMs = (await work(signal)) as number | undefined;
      } catch (error) {
        nextMs = undefined;
        if (!signal.aborted) onFailure(error);
      }
    } while (isStale && !signal.aborted);
    current = undefined;
    if (!signal.aborted) timer = setTimeout(wake, Math.ceil(Math.min(nextMs ?? maxPauseMs, maxPauseMs)));
  }

  function wake(): void {
    if (signal.aborted) return;
    isStale = true;
    // A request may wake it, and the work is not done for the organisation of this request.
    current ??= runWithoutTenant(runUntilIdle);
  }

  wake();
  return {
    wake,
    async stop() {
      stopping.abort();
      await current;
      clearTimeout(timer);
    },
  };
}
