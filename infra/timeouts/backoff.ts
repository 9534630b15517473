/** Waits `ms`, or until `signal` is aborted. Never rejects. */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const done = () => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal?.addEventListener('abort', done);
  });
}

/** Returns the backoff before retry `attempt`. It doubles from `minMs` to `maxMs`, with 20 % jitter. */
export function backoffMs(attempt: number, minMs: number, maxMs: number): number {
  return Math.min(minMs * 2 ** Math.min(attempt, 20), maxMs) * (0.8 + Math.random() * 0.4);
}
