import { setTimeout } from 'node:timers/promises';

/** Waits for `ms` milliseconds, or until `signal` is aborted. Never rejects. */
export async function pause(ms: number, signal?: AbortSignal): Promise<void> {
  await setTimeout(ms, undefined, { signal }).catch(() => undefined);
}

/** Returns the backoff before retry `attempt`. It doubles from `minMs` to `maxMs`, with 20 % jitter. */
export function computeBackoffMs(attempt: number, minMs: number, maxMs: number): number {
  return Math.min(minMs * 2 ** Math.min(attempt, 20), maxMs) * (0.8 + Math.random() * 0.4);
}
