/** Result of {@link withTimeout} after the timeout. */
export const timedOut = Symbol('timed out');

/**
 * Settles like `work`, or resolves with {@link timedOut} after `timeoutMs`. `work` then continues, and its outcome is
 * ignored.
 */
export async function withTimeout<Result>(work: Promise<Result>, timeoutMs: number): Promise<Result | typeof timedOut> {
  let timer: NodeJS.Timeout | undefined;
  const timeoutPromise = new Promise<typeof timedOut>((resolve) => {
    timer = setTimeout(resolve, Math.max(0, timeoutMs), timedOut);
  });
  try {
    return await Promise.race([work, timeoutPromise]);
  } finally {
    clearTimeout(timer);
  }
}

/** Waits for `work` at most `timeoutMs`. @returns whether it settled in time, fulfilled or rejected. */
export async function settlesBeforeTimeout(work: Promise<unknown>, timeoutMs: number): Promise<boolean> {
  const settledWork = work.catch(() => undefined);
  return (await withTimeout(settledWork, timeoutMs)) !== timedOut;
}

/**
 * Settles like `work`, or rejects with the reason of `signal` if that is aborted first. The later result of `work` is
 * ignored.
 */
export async function raceWithAbort<Result>(work: Promise<Result>, signal: AbortSignal | undefined): Promise<Result> {
  if (signal === undefined) return work;
  let end: () => void = () => undefined;
  const abortPromise = new Promise<never>((_resolve, reject) => {
    end = () => reject(signal.reason);
    if (signal.aborted) end();
    else signal.addEventListener('abort', end, { once: true });
  });
  try {
    return await Promise.race([work, abortPromise]);
  } finally {
    signal.removeEventListener('abort', end);
  }
}
