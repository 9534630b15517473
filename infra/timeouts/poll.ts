import { pause } from './backoff.ts';

export interface PollOptions {
  readonly intervalMs: number;
  readonly timeoutMs: number;
  readonly signal?: AbortSignal | undefined;
}

/**
 * Calls `attempt` every `intervalMs` until its result is truthy, `timeoutMs` has passed or `signal` is aborted.
 * @returns the last result. @throws the errors of `attempt`.
 */
export async function poll<Result>(attempt: () => Result | Promise<Result>, options: PollOptions): Promise<Result> {
  const { intervalMs, timeoutMs, signal } = options;
  const deadlineMs = performance.now() + timeoutMs;
  for (;;) {
    const result = await attempt();
    const leftMs = deadlineMs - performance.now();
    if (result || leftMs <= 0 || signal?.aborted) return result;
    await pause(Math.min(intervalMs, leftMs), signal);
  }
}
