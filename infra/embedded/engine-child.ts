import type { ChildProcess } from 'node:child_process';
import { setTimeout as delay } from 'node:timers/promises';
import { runlakeError } from '../errors/runlake-error.ts';
import type { EngineProcess } from './supervise-engine.ts';

export interface EngineChild {
  readonly engine: string;
  readonly child: ChildProcess;
  /** Readiness probe: returns `ready`, or the reason why not yet. It throws if the server cannot become ready. */
  readonly ask: () => Promise<string>;
  /** Liveness probe, see {@link EngineProcess.isAlive}. */
  readonly isAlive?: () => Promise<boolean>;
  /** The last error in the output of the engine, if any. */
  readonly explain: () => string | undefined;
  /** Requests a graceful shutdown. Must not throw. */
  readonly endGently: () => unknown;
  readonly readyTimeoutMs: number;
  /** After this time the child is killed. */
  readonly stopTimeoutMs: number;
}

const pollMs = 15;
/** After the exit, how long to read remaining output; a grandchild may hold the pipe open forever. */
const remainingOutputMs = 200;

/**
 * Waits until the server in a child process is ready.
 *
 * @throws ENGINE_START_FAILED with the engine's error message; the child has exited then.
 */
export async function untilReady(options: EngineChild): Promise<EngineProcess> {
  const { engine, child, ask, explain, endGently, readyTimeoutMs, stopTimeoutMs } = options;
  let gone = false;
  const exited = new Promise<string>((resolve) => {
    child.once('error', (error) => resolve(error.message));
    child.once('exit', (code, signal) => {
      const end = () => resolve(explain() ?? `it exited with ${signal ?? `code ${code}`}`);
      setTimeout(end, remainingOutputMs);
      child.once('close', end);
    });
  }).finally(() => {
    gone = true;
  });
  const stop = async (gently: () => unknown) => {
    if (gone) return;
    const deadline = setTimeout(() => child.kill('SIGKILL'), stopTimeoutMs);
    gently();
    await exited;
    clearTimeout(deadline);
  };

  const deadlineMs = Date.now() + readyTimeoutMs;
  try {
    for (;;) {
      const answer = await ask();
      if (gone) throw runlakeError('ENGINE_START_FAILED', { engine, reason: await exited });
      if (answer === 'ready') break;
      if (Date.now() > deadlineMs) {
        const reason = `it did not become ready within ${readyTimeoutMs / 1_000} s: ${answer}`;
        throw runlakeError('ENGINE_START_FAILED', { engine, reason });
      }
      await delay(pollMs);
    }
  } catch (error) {
    await stop(() => child.kill('SIGTERM'));
    throw error;
  }
  return { exited, stop: () => stop(endGently), ...(options.isAlive && { isAlive: options.isAlive }) };
}
