/**
 * The loop around roll-up runs.
 *
 * Invariant: while dirty hours exist and both engines are available, roll-up runs continue; never two at a time in this
 * process (the advisory locks exclude other processes).
 *
 *   1. If the loop was not woken, check whether any hour is dirty; if none, continue with 4. An idle loop does nothing
 *      but this check.
 *   2. Execute a roll-up run. After a failure the hours stay dirty: back off exponentially and continue with 1.
 *   3. Pause, so that a stream of wakes causes few runs with many hours each.
 *   4. Sleep until the loop is woken or the interval is over; if a limit left dirty hours, do not sleep.
 *
 * On stop, a running roll-up run finishes, and no other starts.
 */
import type { Logger } from '../../infra/telemetry/logger.ts';
import { computeBackoffMs, pause } from '../../infra/timeouts/backoff.ts';
import type { RollUpOutcome } from './dirty-hours.ts';

export interface RollUpLoopOptions {
  /** Begins the log messages. */
  readonly name: string;
  /** Executes a roll-up run. @param hours Maximum number of hours, if fewer than usual. */
  run(hours?: number): Promise<RollUpOutcome>;
  /** Returns whether there may be dirty hours. */
  hasWork(): Promise<boolean>;
  /** Usual maximum number of hours of a roll-up run. */
  readonly maxHours: number;
  /** Maximum time between two checks for dirty hours, in milliseconds. */
  readonly intervalMs: number;
  readonly logger: Logger;
}

export interface RollUp {
  /**
   * Signals that hours were marked dirty, so that they are counted now instead of at the next check. Never blocks and
   * never throws.
   */
  wake(): void;
  /**
   * Waits until a running roll-up run has ended, then executes one. When it resolves, all hours marked dirty before the
   * call are counted, unless the outcome is `busy` or `more` is set.
   *
   * @throws errors of the roll-up run.
   */
  runNow(): Promise<RollUpOutcome>;
  /**
   * Checks that roll-up runs succeed.
   *
   * @throws the last error after several consecutive failures; the roll-up then lags behind.
   */
  check(): Promise<void>;
  /** Stops the loop; resolves when a roll-up run that is in progress has finished. */
  stop(): Promise<void>;
}

/**
 * Minimum number of consecutive failures that are reported. One or two failures in a row are expected when an engine
 * restarts.
 */
const minReportedFailures = 3;
/**
 * The pause after a run is three times the duration of the run, because each run counts the current hour again while
 * traces arrive.
 */
const pauseFactor = 3;
const minPauseMs = 400;
const maxPauseMs = 5_000;
const minBackoffMs = 250;
const maxBackoffMs = 5_000;

/**
 * Returns the maximum number of hours, at least 1, of the next run after `failed` consecutive failures. A failed run may
 * have been too large for the memory of ClickHouse.
 */
export function reduceHours(maxHours: number, failed: number): number {
  return Math.max(1, Math.ceil(maxHours / 4 ** failed));
}

/** Starts the loop of a process. */
export function startRollUpLoop({ name, run, hasWork, maxHours, intervalMs, logger }: RollUpLoopOptions): RollUp {
  const stopping = new AbortController();
  let isWoken = true;
  let sleepController = new AbortController();
  let lagError: { readonly error: unknown } | undefined;
  let running: Promise<unknown> = Promise.resolve();

  function runNow(hours?: number): Promise<RollUpOutcome> {
    const rollUp = running.then(async () => {
      const result = await run(hours);
      logger.debug(result, `${name} run finished`);
      return result;
    });
    running = rollUp.catch(() => undefined);
    return rollUp;
  }

  async function runLoop(): Promise<void> {
    let failed = 0;
    while (!stopping.signal.aborted) {
      const startedMs = performance.now();
      try {
        if (isWoken || (await hasWork())) {
          isWoken = false;
          isWoken = (await runNow(reduceHours(maxHours, failed))).more || isWoken;
          const durationMs = performance.now() - startedMs;
          await pause(Math.min(Math.max(minPauseMs, pauseFactor * durationMs), maxPauseMs), stopping.signal);
        }
        if (failed > 0) logger.info({ failed }, `${name} works again`);
        failed = 0;
        lagError = undefined;
        sleepController = new AbortController();
        if (!isWoken) await pause(intervalMs, AbortSignal.any([stopping.signal, sleepController.signal]));
      } catch (err) {
        failed += 1;
        if (failed >= minReportedFailures) lagError = { error: err };
        logger.warn({ err, failed }, `${name} run failed; its hours stay dirty`);
        await pause(computeBackoffMs(failed - 1, minBackoffMs, maxBackoffMs), stopping.signal);
      }
    }
  }

  const loopPromise = runLoop();
  return {
    wake: () => {
      isWoken = true;
      sleepController.abort();
    },
    runNow: () => runNow(),
    check: async () => {
      if (lagError !== undefined) throw lagError.error;
    },
    stop: async () => {
      stopping.abort();
      await loopPromise;
      await running;
    },
  };
}
