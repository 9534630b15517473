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
export async function poll<Answer>(ask: () => Answer | Promise<Answer>, options: PollOptions): Promise<Answer> {
  const { everyMs, timeoutMs, signal } = options;
  const deadlineMs = performance.now() + timeoutMs;
  for (;;) {
    const answer = await ask();
    const leftMs = deadlineMs - performance.now();
    if (answer || leftMs <= 0 || signal?.aborted) return answer;
    await pause(Math.min(everyMs, leftMs), signal);
  }
}
