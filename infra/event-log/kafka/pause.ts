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

/** Waits for `work` at most `ms`. @returns whether it settled in time, fulfilled or rejected. */
export async function settlesBeforeTimeout(work: Promise<unknown>, ms: number): Promise<boolean> {
  const late = new AbortController();
  const ended = work.then(
    () => true,
    () => true,
  );
  const inTime = await Promise.race([ended, pause(Math.max(0, ms), late.signal).then(() => false)]);
  late.abort();
  return inTime;
}

/** Backoff before retry `attempt`: doubles from `minMs` to `maxMs`, with 20 % jitter. */
export function backoffMs(attempt: number, minMs: number, maxMs: number): number {
  return Math.min(minMs * 2 ** Math.min(attempt, 20), maxMs) * (0.8 + Math.random() * 0.4);
}
