/**
 * Keeps an engine running.
 *
 * Invariant: at most one process of the engine runs at a time, and none runs after `stop` has resolved.
 *
 *   1. `launch` starts a process and resolves when it is ready. If the first launch fails, the caller gets the error.
 *   2. Wait for `exited` of the process. If `stop` was called, supervision ends here.
 *   3. Otherwise wait (0.1 s, doubled after each failure up to 10 s) and launch again. The new process has the same
 *      address, so that clients can reconnect. After the engine has run for a minute, the backoff starts again at 0.1
 *      s.
 *   4. After 30 failed launches or early exits in a row (about four minutes), give up. `exited` then contains the
 *      reason. A full disk does not count: the engine starts again when there is space.
 *
 * During step 2, supervision probes the engine at intervals. After three failed liveness probes in a row, it stops the
 * engine, by force if necessary, and continues with step 3. It counts failed probes instead of measuring time, because
 * at most one probe fails if the machine was suspended.
 */
import type { ChildProcess } from 'node:child_process';
import { runlakeError } from '../errors/runlake-error.ts';
import type { Logger } from '../telemetry/logger.ts';
import { counter } from '../telemetry/metrics.ts';
import { computeBackoffMs, pause } from '../timeouts/backoff.ts';

export interface EngineProcess {
  /** Resolves when the process has exited for any cause. The value is the reason, in one line. Never rejects. */
  readonly exited: Promise<string>;
  /**
   * Stops the process: first gracefully, and after a deadline by force. Resolves when the process has exited. Never
   * rejects.
   */
  stop(): Promise<void>;
  /**
   * Liveness probe. Resolves with true if the server responds, even with an error. Takes at most a few seconds and
   * never rejects. Optional.
   */
  isAlive?(): Promise<boolean>;
}

/** The reason why an engine ended permanently. */
export interface EngineExit {
  /** True if `stop` was called; false if the engine could not be started again. */
  readonly expected: boolean;
  readonly reason: string;
}

export interface SupervisedEngine {
  readonly exited: Promise<EngineExit>;
  stop(): Promise<void>;
}

/** Intervals and timeouts of the supervision. Tests that suspend an engine shorten them. */
export interface SupervisionTimes {
  /** Pause between two liveness probes. Default: 5 s. */
  readonly probeIntervalMs?: number;
  /** Timeout of a liveness probe. Default: 5 s for ClickHouse, 10 s for Postgres. */
  readonly probeTimeoutMs?: number;
  /** Time that an engine may take to stop before it is killed. Default: 10 s for ClickHouse, 12 s for Postgres. */
  readonly stopTimeoutMs?: number;
  /** Maximum pause before a restart. Default: 10 s. */
  readonly maxRestartDelayMs?: number;
}

const minDelayMs = 100;
const defaultMaxDelayMs = 10_000;
const minHealthyMs = 60_000;
const maxFailures = 30;
/** Number of failures from which on the pause has its maximum. Further ones on a full disk do not count. */
const maxFullDiskFailures = 7;
/** In errors of Node, Postgres and ClickHouse. */
const fullDiskPattern = /no space left on device|NOT_ENOUGH_SPACE/i;
const defaultProbeIntervalMs = 5_000;
const maxFailedProbes = 3;

const restarts = counter(
  'runlake_engine_restarts_total',
  'Restarts of an embedded engine that exited unexpectedly or did not respond, by engine (ClickHouse, Postgres).',
  ['engine'],
);

export async function superviseEngine(
  engine: string,
  launch: () => Promise<EngineProcess>,
  logger?: Logger,
  times: Pick<SupervisionTimes, 'probeIntervalMs' | 'maxRestartDelayMs'> = {},
): Promise<SupervisedEngine> {
  const { probeIntervalMs = defaultProbeIntervalMs, maxRestartDelayMs = defaultMaxDelayMs } = times;
  const stopController = new AbortController();
  let current = await launch();
  // The metric starts at zero, so that the first restart is visible as an increase.
  restarts.inc({ engine }, 0);
  let startedAtMs = Date.now();
  let failures = 0;

  /** @param exitReason why the engine has exited. @returns the new process, or why there is none. */
  const restart = async (exitReason: string): Promise<EngineProcess | string> => {
    for (let reason = exitReason; ; ) {
      if (failures >= maxFailures) return reason;
      const pauseMs = computeBackoffMs(failures, minDelayMs, maxRestartDelayMs);
      failures = fullDiskPattern.test(reason) ? Math.min(failures + 1, maxFullDiskFailures) : failures + 1;
      await pause(pauseMs, stopController.signal);
      if (stopController.signal.aborted) return reason;
      try {
        return await launch();
      } catch (error) {
        reason = error instanceof Error ? error.message : String(error);
        if (stopController.signal.aborted) return reason;
        logger?.error({ engine, failures, reason }, 'embedded engine failed to restart');
      }
    }
  };

  /**
   * Resolves with the reason when the process has exited, either by itself or because it was stopped after failed
   * probes.
   */
  const waitForEnd = async (engineProcess: EngineProcess): Promise<string> => {
    const gone = new AbortController();
    const exited = engineProcess.exited.finally(() => gone.abort());
    for (let failed = 0; engineProcess.isAlive && !gone.signal.aborted; ) {
      await pause(probeIntervalMs, AbortSignal.any([gone.signal, stopController.signal]));
      if (stopController.signal.aborted || gone.signal.aborted) break;
      const isAlive = await Promise.race([engineProcess.isAlive(), exited.then(() => true)]);
      failed = isAlive ? 0 : failed + 1;
      if (failed < maxFailedProbes || stopController.signal.aborted) continue;
      logger?.error({ engine, probes: failed }, 'embedded engine does not respond, stopping it');
      await engineProcess.stop();
      return `${failed} liveness probes in a row failed`;
    }
    return exited;
  };

  const run = async (): Promise<EngineExit> => {
    for (;;) {
      const reason = await waitForEnd(current);
      if (stopController.signal.aborted) return { expected: true, reason: 'stopped' };
      logger?.error({ engine, reason }, 'embedded engine exited, restarting it');
      if (Date.now() - startedAtMs > minHealthyMs) failures = 0;
      const next = await restart(reason);
      if (typeof next === 'string') return { expected: stopController.signal.aborted, reason: next };
      current = next;
      startedAtMs = Date.now();
      restarts.inc({ engine });
      // `stop` was called during the launch, so only this function can stop the new process.
      if (stopController.signal.aborted) await current.stop();
      else logger?.info({ engine }, 'embedded engine restarted');
    }
  };

  const exited = run();
  return {
    exited,
    async stop() {
      stopController.abort();
      await current.stop();
      await exited;
    },
  };
}

export interface EngineChild {
  readonly engine: string;
  readonly child: ChildProcess;
  /**
   * Readiness probe. Returns `ready`, or the reason why the server is not ready yet. Throws if the server cannot become
   * ready.
   */
  readonly probe: () => Promise<string>;
  /** Liveness probe; see {@link EngineProcess.isAlive}. */
  readonly isAlive?: () => Promise<boolean>;
  /** Returns the last error in the output of the engine, if any. */
  readonly explain: () => string | undefined;
  /** Requests a graceful shutdown. Must not throw. */
  readonly requestShutdown: () => unknown;
  readonly readyTimeoutMs: number;
  /** Time after which the child is killed. */
  readonly stopTimeoutMs: number;
}

const pollMs = 15;
/** Time to read remaining output after the exit. It is limited, because a grandchild may hold the pipe open forever. */
const remainingOutputMs = 200;

/**
 * Waits until the server in a child process is ready.
 *
 * @throws ENGINE_START_FAILED with the engine's error message. In that case, the child has exited.
 */
export async function waitUntilReady(options: EngineChild): Promise<EngineProcess> {
  const { engine, child, probe, explain, requestShutdown, readyTimeoutMs, stopTimeoutMs } = options;
  let hasExited = false;
  const exited = new Promise<string>((resolve) => {
    child.once('error', (error) => resolve(error.message));
    child.once('exit', (code, signal) => {
      const end = () => resolve(explain() ?? `it exited with ${signal ?? `code ${code}`}`);
      setTimeout(end, remainingOutputMs);
      child.once('close', end);
    });
  }).finally(() => {
    hasExited = true;
  });
  const stop = async (requestStop: () => unknown) => {
    if (hasExited) return;
    const deadline = setTimeout(() => child.kill('SIGKILL'), stopTimeoutMs);
    requestStop();
    await exited;
    clearTimeout(deadline);
  };

  const deadlineMs = Date.now() + readyTimeoutMs;
  try {
    for (;;) {
      const state = await probe();
      if (hasExited) throw runlakeError('ENGINE_START_FAILED', { engine, reason: await exited });
      if (state === 'ready') break;
      if (Date.now() > deadlineMs) {
        const reason = `it did not become ready within ${readyTimeoutMs / 1_000} s: ${state}`;
        throw runlakeError('ENGINE_START_FAILED', { engine, reason });
      }
      await pause(pollMs);
    }
  } catch (error) {
    await stop(() => child.kill('SIGTERM'));
    throw error;
  }
  return { exited, stop: () => stop(requestShutdown), ...(options.isAlive && { isAlive: options.isAlive }) };
}
