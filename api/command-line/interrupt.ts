/** Signals and prompts of commands. */
import { createInterface } from 'node:readline/promises';
import { raceWithAbort } from '../../infra/timeouts/with-timeout.ts';

const signals = ['SIGINT', 'SIGTERM'] as const;

/**
 * Runs a command that SIGINT (Ctrl-C) and SIGTERM interrupt: `interrupted` is then aborted, and if `work` fails, its error
 * is not reported and the exit code is 130. A second signal ends the process.
 *
 * @throws the errors of `work`, unless it was interrupted.
 */
export async function runInterruptibly(work: (interrupted: AbortSignal) => Promise<void>): Promise<void> {
  const interrupt = new AbortController();
  const stop = () => interrupt.abort();
  for (const signal of signals) process.once(signal, stop);
  try {
    await work(interrupt.signal);
  } catch (error) {
    if (!interrupt.signal.aborted) throw error;
    process.exitCode = 130;
  } finally {
    for (const signal of signals) process.removeListener(signal, stop);
  }
}

/** Resolves with the result of `work`, or with undefined if a signal has interrupted it. Rejects with any other error. */
export function unlessInterrupted<Result>(
  { interrupted }: { readonly interrupted: AbortSignal },
  work: Promise<Result>,
): Promise<Result | undefined> {
  return work.catch((error: unknown) => {
    if (!interrupted.aborted) throw error;
    return undefined;
  });
}

/**
 * Asks on standard error, and resolves with the line that is typed, or with '' at the end of the input (Ctrl-D).
 *
 * @throws the reason of `interrupted`, which Ctrl-C aborts within {@link runInterruptibly}.
 */
export async function prompt(question: string, interrupted: AbortSignal): Promise<string> {
  interrupted.throwIfAborted();
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  // A terminal that is read by line sends no signal.
  terminal.once('SIGINT', () => process.kill(process.pid, 'SIGINT'));
  // At the end of the input, `question` rejects on a terminal, and stays pending elsewhere.
  const isClosed = new Promise<string>((resolve) => terminal.once('close', () => resolve('')));
  try {
    const answer = Promise.race([terminal.question(question).catch(() => isClosed), isClosed]);
    return await raceWithAbort(answer, interrupted);
  } finally {
    terminal.close();
    if (interrupted.aborted) process.stderr.write('\n');
  }
}
