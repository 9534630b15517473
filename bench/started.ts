/**
 * Ends what a bench has started, the last first: after its work, after an error, and at SIGINT and SIGTERM. Benches call
 * {@link atEnd} or {@link started} for each process, connection and folder, and do not end them otherwise.
 */
import { startRole } from '../test/role-process.ts';
import { startRunlake } from '../test/runlake-process.ts';

const endings: (() => unknown)[] = [];
let ended: Promise<void> | undefined;

/** Calls `end` when the bench ends, however it ends. */
export function atEnd(end: () => unknown): void {
  endings.push(end);
}

/** Waits until something has started, and ends it when the bench ends, even if that is before the start has completed. */
export function started<Started>(starting: Promise<Started>, end: (running: Started) => unknown): Promise<Started> {
  // A start that fails ends what it has started.
  atEnd(() => starting.then(end, () => undefined));
  return starting;
}

/** Starts a role as {@link startRole} does, until the end of the bench. */
export const startBenchRole = (...options: Parameters<typeof startRole>) =>
  started(startRole(...options), (role) => role.end());

/** Starts Runlake as {@link startRunlake} does, until the end of the bench. */
export const startBenchRunlake = (...options: Parameters<typeof startRunlake>) =>
  started(startRunlake(...options), (runlake) => runlake.remove());

/** Does the work of a bench, and ends what it has started. The exit code is that of the signal, or 1 after an error. */
export async function runBench(work: () => Promise<unknown>): Promise<void> {
  const leave = (code: number) => endAll().then(() => process.exit(code));
  // More than once: npm and tsx pass on a signal that a terminal sends to all of them.
  process.on('SIGINT', () => leave(130));
  process.on('SIGTERM', () => leave(143));
  // Also errors that no `await` receives.
  process.on('uncaughtException', (error) => {
    // What is ended makes the work fail.
    if (ended === undefined) console.error(error);
    void leave(1);
  });
  try {
    await work();
  } catch (error) {
    if (ended === undefined) console.error(error);
    await leave(1);
  }
  await endAll();
}

function endAll(): Promise<void> {
  ended ??= (async () => {
    for (let end = endings.pop(); end !== undefined; end = endings.pop()) {
      try {
        await end();
      } catch (error) {
        console.error(error);
        process.exitCode = 1;
      }
    }
  })();
  return ended;
}
