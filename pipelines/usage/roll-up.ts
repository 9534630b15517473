/**
 * The loop around the passes of the usage roll-up.
 *
 * Invariant: while notes exist and the engines answer, passes go on; within this process never two at a time (the
 * advisory lock of a pass keeps other processes out).
 *
 *   1. Not woken: look whether a process has left notes; none means 4. That look is the whole cost of idling.
 *   2. A pass. A failure leaves every note where it was: wait, longer each time, and go on with 1.
 *   3. Rest, so that a stream of wakes makes few passes, each with many hours.
 *   4. Sleep until somebody wakes the loop, or the interval is over; not at all where a limit left notes over.
 *
 * Stopping lets a pass under way finish and begins no other.
 */
import type { Logger } from '../../infra/telemetry/logger.ts';
import { hasNotes, type PassLimits, type PassOutcome, type PassPorts, rollUpPass, usualHours } from './roll-up-pass.ts';
import { ageOfOldestNote, countedHours, oldestNoteAge, passSeconds } from './usage-metrics.ts';

export interface RollUpOptions extends PassPorts {
  /** Longest pause between two looks for notes, in milliseconds. */
  readonly intervalMs: number;
  readonly logger: Logger;
  readonly limits?: PassLimits;
}

export interface RollUp {
  /** Says that hours were noted, so that they are counted now rather than at the next look. Never waits, never throws. */
  wake(): void;
  /**
   * One pass of its own, after the one that may be under way: what was noted before the call is counted when it resolves,
   * unless the outcome says `busy` or `more`.
   * @throws what {@link rollUpPass} throws.
   */
  passNow(): Promise<PassOutcome>;
  /** @throws what the last pass failed with, where several in a row have failed: usage then lags behind. */
  check(): Promise<void>;
  /** Ends the loop; resolves when the pass under way is finished. */
  stop(): Promise<void>;
}

/** One or two failures are a restart of an engine. */
const failuresToTell = 3;
/** At most a quarter of the time goes into passes: while traces stream in, each counts a growing hour again. */
const restShare = 3;
const restMs = 400;
const longestRestMs = 5_000;
const firstBackoffMs = 250;
const longestBackoffMs = 5_000;

/** Starts the roll-up of a process. */
export function startRollUp({ database, warehouse, intervalMs, logger, limits = {} }: RollUpOptions): RollUp {
  let stopping = false;
  let woken = true;
  let nudge = () => {};
  let lagging: { readonly fault: unknown } | undefined;
  let running: Promise<unknown> = Promise.resolve();

  function passNow(passLimits = limits): Promise<PassOutcome> {
    const pass = running.then(async () => {
      const observe = passSeconds.startTimer();
      let outcome: PassOutcome['outcome'] | 'failed' = 'failed';
      try {
        const result = await rollUpPass({ database, warehouse }, passLimits);
        outcome = result.outcome;
        countedHours.inc(result.hours);
        logger.debug(result, 'pass of the usage roll-up');
        return result;
      } finally {
        observe({ outcome });
      }
    });
    running = pass.catch(() => undefined);
    return pass;
  }

  /** Waits for the time, or until `over`, which is looked at when somebody wakes or stops the loop. */
  function pause(ms: number, over: () => boolean): Promise<void> {
    if (over()) return Promise.resolve();
    return new Promise((resolve) => {
      const end = () => {
        clearTimeout(timer);
        nudge = () => {};
        resolve();
      };
      const timer = setTimeout(end, ms);
      nudge = () => over() && end();
    });
  }

  async function loop(): Promise<void> {
    let failed = 0;
    while (!stopping) {
      const startedMs = performance.now();
      try {
        if (woken || (await hasNotes(database))) {
          woken = false;
          // A pass that failed may have been too large for the memory of ClickHouse.
          const hours = Math.ceil((limits.hours ?? usualHours) / 4 ** failed);
          woken = (await passNow({ ...limits, hours })).more || woken;
          const tookMs = performance.now() - startedMs;
          await pause(Math.min(Math.max(restMs, restShare * tookMs), longestRestMs), () => stopping);
        }
        if (failed > 0) logger.info({ failed }, 'usage is counted again');
        failed = 0;
        lagging = undefined;
        await pause(intervalMs, () => stopping || woken);
      } catch (err) {
        failed += 1;
        if (failed >= failuresToTell) lagging = { fault: err };
        logger.warn({ err, failed }, 'usage was not counted; its notes wait for the next pass');
        await pause(Math.min(firstBackoffMs * 2 ** (failed - 1), longestBackoffMs), () => stopping);
      }
    }
  }

  const looping = loop();
  const hideMetrics = oldestNoteAge.showing(() => ageOfOldestNote(database));
  return {
    wake: () => {
      woken = true;
      nudge();
    },
    passNow: () => passNow(),
    check: async () => {
      if (lagging !== undefined) throw lagging.fault;
    },
    stop: async () => {
      stopping = true;
      nudge();
      await looping;
      await running;
      hideMetrics();
    },
  };
}
