import type { ChildProcess } from 'node:child_process';
import { setTimeout as delay } from 'node:timers/promises';
import { fault } from '../errors/runlake-error.ts';
import type { EngineProcess } from './supervise-engine.ts';

export interface EngineChild {
  readonly engine: string;
  readonly child: ChildProcess;
  /** Asks the server whether it can work: `ready`, or why not yet. A throw means that it never will. */
  readonly ask: () => Promise<string>;
  /** Liveness probe, see {@link EngineProcess.isAlive}. */
  readonly isAlive?: () => Promise<boolean>;
  /** The last error that the engine wrote about itself, if any. */
  readonly explain: () => string | undefined;
  /** Asks the server to end in good order. Must not throw. */
  readonly endGently: () => unknown;
  readonly readyWithinMs: number;
  /** After this time the child is killed. */
  readonly stopWithinMs: number;
}

const pollMs = 15;
/** For the last words in the pipe, which a grandchild may hold open for ever. */
const lastWordsMs = 200;

/**
 * Waits until the server in a child process answers.
 *
 * @throws ENGINE_START_FAILED with the reason in the engine's words; then the child has gone.
 */
export async function untilReady(options: EngineChild): Promise<EngineProcess> {
  const { engine, child, ask, explain, endGently, readyWithinMs, stopWithinMs } = options;
  let gone = false;
  const exited = new Promise<string>((resolve) => {
    child.once('error', (error) => resolve(error.message));
    child.once('exit', (code, signal) => {
      const end = () => resolve(explain() ?? `it ended with ${signal ?? `code ${code}`}`);
      setTimeout(end, lastWordsMs);
      child.once('close', end);
    });
  }).finally(() => {
    gone = true;
  });
  const stop = async (gently: () => unknown) => {
    if (gone) return;
    const deadline = setTimeout(() => child.kill('SIGKILL'), stopWithinMs);
    gently();
    await exited;
    clearTimeout(deadline);
  };

  const deadlineMs = Date.now() + readyWithinMs;
  try {
    for (;;) {
      const answer = await ask();
      if (gone) throw fault('ENGINE_START_FAILED', { engine, reason: await exited });
      if (answer === 'ready') break;
      if (Date.now() > deadlineMs) {
        const reason = `it did not answer within ${readyWithinMs / 1_000} s: ${answer}`;
        throw fault('ENGINE_START_FAILED', { engine, reason });
      }
      await delay(pollMs);
    }
  } catch (error) {
    await stop(() => child.kill('SIGTERM'));
    throw error;
  }
  return { exited, stop: () => stop(endGently), ...(options.isAlive && { isAlive: options.isAlive }) };
}
