import { runlakeError } from '../errors/runlake-error.ts';

/**
 * Waits for `run`, at most for `timeoutMs`; then aborts its signal.
 *
 * @throws JOB_TIMED_OUT after the timeout, even if `run` ignores the signal.
 */
export async function withTimeout(timeoutMs: number, run: (signal: AbortSignal) => Promise<unknown>): Promise<void> {
  const over = new AbortController();
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      const error = runlakeError('JOB_TIMED_OUT', { timeoutMs });
      over.abort(error);
      reject(error);
    }, timeoutMs);
  });
  try {
    await Promise.race([run(over.signal), late]);
  } finally {
    clearTimeout(timer);
  }
}
