/**
 * The loop around roll-up runs.
 *
 * Invariant: while dirty hours exist and the engines answer, roll-up runs continue; never two at a time in this process
 * (the advisory lock of a run excludes other processes).
 *
 *   1. If the loop was not woken, check whether any hour is dirty; if none, continue with 4. This check is the whole
 *      cost of idling.
 *   2. Execute a roll-up run. After a failure the hours stay dirty: back off exponentially and continue with 1.
 *   3. Pause, so that a stream of wakes causes few runs with many hours each.
 *   4. Sleep until the loop is woken or the interval is over; if a limit left dirty hours, do not sleep.
 *
 * Stopping lets a running roll-up run finish and starts no other.
 */
import type { Logger } from '../../infra/telemetry/logger.ts';
import {
  ageOfOldestDirtyHour,
  countedHours,
  defaultMaxHours,
  hasDirtyHours,
  oldestDirtyHourAge,
  type RollUpDeps,
  type RollUpLimits,
  type RollUpOutcome,
  rollUpSeconds,
  runRollUp,
} from './run-roll-up.ts';

export interface RollUpOptions extends RollUpDeps {
  /** Maximum time between two checks for dirty hours, in milliseconds. */
  readonly intervalMs: number;
  readonly logger: Logger;
  readonly limits?: RollUpLimits;
}

export interface RollUp {
  /**
   * Signals that hours were marked dirty, so that they are counted now and not at the next check. Never blocks, never throws.
   */
  wake(): void;
  /**
   * Executes a roll-up run after any running one. When it resolves, all hours marked dirty before the call are counted,
   * unless the outcome is `busy` or `more` is set.
   *
   * @throws errors of {@link runRollUp}.
   */
  runNow(): Promise<RollUpOutcome>;
  /** @throws the last error after several consecutive failures; usage then lags behind. */
  check(): Promise<void>;
  /** Stops the loop; resolves when a running roll-up run has finished. */
  stop(): Promise<void>;
}

/** One or two failures in a row are expected when an engine restarts. */
const minReportedFailures = 3;
/** The pause is three times the duration of a run: while traces stream in, each run counts a growing hour again. */
const pauseFactor = 3;
const minPauseMs = 400;
const maxPauseMs = 5_000;
const minBackoffMs = 250;
const maxBackoffMs = 5_000;

/** Starts the roll-up loop of a process. */
export function startRollUp({ database, clickhouse, intervalMs, logger, limits = {} }: RollUpOptions): RollUp {
  let stopping = false;
  let woken = true;
  let wakePause = () => {};
  let lagging: { readonly error: unknown } | undefined;
  let running: Promise<unknown> = Promise.resolve();

  function runNow(rollUpLimits = limits): Promise<RollUpOutcome> {
    const rollUp = running.then(async () => {
      const observe = rollUpSeconds.startTimer();
      let outcome: RollUpOutcome['outcome'] | 'failed' = 'failed';
      try {
        const result = await runRollUp({ database, clickhouse }, rollUpLimits);
        outcome = result.outcome;
        countedHours.inc(result.hours);
        logger.debug(result, 'usage roll-up run finished');
        return result;
      } finally {
        observe({ outcome });
      }
    });
    running = rollUp.catch(() => undefined);
    return rollUp;
  }

  /** Waits for `ms`, or until `over` returns true; `over` is evaluated when the loop is woken or stopped. */
  function pause(ms: number, over: () => boolean): Promise<void> {
    if (over()) return Promise.resolve();
    return new Promise((resolve) => {
      const end = () => {
        clearTimeout(timer);
        wakePause = () => {};
        resolve();
      };
      const timer = setTimeout(end, ms);
      wakePause = () => over() && end();
    });
  }

  async function loop(): Promise<void> {
    let failed = 0;
    while (!stopping) {
      const startedMs = performance.now();
      try {
        if (woken || (await hasDirtyHours(database))) {
          woken = false;
          // A failed run may have been too large for the memory of ClickHouse.
          const hours = Math.ceil((limits.hours ?? defaultMaxHours) / 4 ** failed);
          woken = (await runNow({ ...limits, hours })).more || woken;
          const tookMs = performance.now() - startedMs;
          await pause(Math.min(Math.max(minPauseMs, pauseFactor * tookMs), maxPauseMs), () => stopping);
        }
        if (failed > 0) logger.info({ failed }, 'usage roll-up works again');
        failed = 0;
        lagging = undefined;
        await pause(intervalMs, () => stopping || woken);
      } catch (err) {
        failed += 1;
        if (failed >= minReportedFailures) lagging = { error: err };
        logger.warn({ err, failed }, 'usage roll-up run failed; its hours stay dirty');
        await pause(Math.min(minBackoffMs * 2 ** (failed - 1), maxBackoffMs), () => stopping);
      }
    }
  }

  const looping = loop();
  const hideMetrics = oldestDirtyHourAge.showing(() => ageOfOldestDirtyHour(database));
  return {
    wake: () => {
      woken = true;
      wakePause();
    },
    runNow: () => runNow(),
    check: async () => {
      if (lagging !== undefined) throw lagging.error;
    },
    stop: async () => {
      stopping = true;
      wakePause();
      await looping;
      await running;
      hideMetrics();
    },
  };
}
