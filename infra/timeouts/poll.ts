import { pause } from './backoff.ts';

export interface PollOptions {
  readonly everyMs: number;
  readonly timeoutMs: number;
  readonly signal?: AbortSignal | undefined;
}

/**
 * Calls `ask` every `everyMs` until its result is truthy, `timeoutMs` has passed or `signal` is aborted.
 * @returns the last result. @throws the errors of `ask`.
 */
export async function poll<Result>(attempt: () => Result | Promise<Result>, options: PollOptions): Promise<Result> {
  const { everyMs, timeoutMs, signal } = options;
  const deadlineMs = performance.now() + timeoutMs;
  for (;;) {
    const result = await attempt();
    const leftMs = deadlineMs - performance.now();
    if (result || leftMs <= 0 || signal?.aborted) return result;
    await pause(Math.min(everyMs, leftMs), signal);
  }
}
