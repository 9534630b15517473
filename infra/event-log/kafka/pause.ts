/** Waits, or less where `signal` says to stop waiting. Never rejects. */
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

/** Waits for `work` at most `ms`. @returns whether it ended in time, well or badly. */
export async function endsWithin(work: Promise<unknown>, ms: number): Promise<boolean> {
  const late = new AbortController();
  const ended = work.then(
    () => true,
    () => true,
  );
  const inTime = await Promise.race([ended, pause(Math.max(0, ms), late.signal).then(() => false)]);
  late.abort();
  return inTime;
}

/** Pauses between attempts: doubling from `firstMs` to `mostMs`, each a little off so that many do not come at once. */
export function backoffMs(attempt: number, firstMs: number, mostMs: number): number {
  return Math.min(firstMs * 2 ** Math.min(attempt, 20), mostMs) * (0.8 + Math.random() * 0.4);
}
