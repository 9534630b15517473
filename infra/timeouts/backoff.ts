import { setTimeout } from 'node:timers/promises';
import { isTransient } from '../errors/runlake-error.ts';

/** Waits for `ms` milliseconds, or until `signal` is aborted. Never rejects. */
export async function pause(ms: number, signal?: AbortSignal): Promise<void> {
  await setTimeout(ms, undefined, { signal }).catch(() => undefined);
}

/** Returns the backoff before retry `attempt`. It doubles from `minMs` to `maxMs`, with 20 % jitter. */
export function computeBackoffMs(attempt: number, minMs: number, maxMs: number): number {
  return Math.min(minMs * 2 ** Math.min(attempt, 20), maxMs) * (0.8 + Math.random() * 0.4);
}

const maxRetryPauseMs = 1_000;
/** How long {@link retryTransient} repeats a call. */
const retryTimeoutMs = 10_000;

/** Repeats `work`, which must be idempotent, with backoff on transient errors: a short outage only delays the caller. */
export async function retryTransient<Result>(work: () => Promise<Result>, minPauseMs: number): Promise<Result> {
  const startedAtMs = performance.now();
  for (let attempt = 0; ; attempt++) {
    try {
      return await work();
    } catch (error) {
      if (!isTransient(error) || performance.now() - startedAtMs > retryTimeoutMs) throw error;
      await pause(computeBackoffMs(attempt, minPauseMs, maxRetryPauseMs));
    }
  }
}
