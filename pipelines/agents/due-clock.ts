import type { Database } from '../../infra/postgres/database.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';

export interface DueClock {
  /** Checks as soon as possible for work that is due. */
  wake(): void;
  /** Stops the clock. Resolves when the current check has finished. */
  stop(): Promise<void>;
}

/** Maximum pause between two calls of `work`, because a notification can be lost and the database clock can be set. */
const maxPauseMs = 10_000;

/**
 * Calls `work` now, after each `wake` and when the next item is due, but at least every ten seconds. Calls do not
 * overlap: a `wake` during a call causes one more call.
 *
 * @param work Processes what is due. Returns the milliseconds until the next item is due; undefined if there is no
 *   item.
 */
export function startDueClock(work: () => Promise<number | undefined>, onFailure: (error: unknown) => void): DueClock {
  let isStopping = false;
  let isStale = false;
  let current: Promise<void> | undefined;
  let timer: NodeJS.Timeout | undefined;

  async function runUntilIdle(): Promise<void> {
    let pauseMs = maxPauseMs;
    do {
      isStale = false;
      clearTimeout(timer);
      try {
        pauseMs = Math.min((await work()) ?? maxPauseMs, maxPauseMs);
      } catch (error) {
        onFailure(error);
      }
    } while (isStale && !isStopping);
    current = undefined;
    if (!isStopping) timer = setTimeout(wake, pauseMs);
  }

  function wake(): void {
    if (isStopping) return;
    isStale = true;
    current ??= runUntilIdle();
  }

  wake();
  return {
    wake,
    async stop() {
      isStopping = true;
      await current;
      clearTimeout(timer);
    },
  };
}

/** Removes a bounded number of expired rows. @returns how many it removed; it is called again until it returns 0. */
export type Sweep = (database: Database, deploymentId: string, signal: AbortSignal) => Promise<number>;

export interface ExpiryOptions {
  readonly database: Database;
  readonly deploymentId: string;
  /** Name of the expiring rows, for the log. */
  readonly what: string;
  readonly sweep: Sweep;
  /** Interval in minutes. Default: 0.5. */
  readonly everyMinutes?: number | undefined;
  readonly logger: Logger;
}

/** Repeats `sweep` at an interval, each time until it removes no more rows. Several processes can do this at once. */
export function startExpiry(options: ExpiryOptions): { stop(): Promise<void> } {
  const { database, deploymentId, what, sweep, everyMinutes = 0.5, logger } = options;
  const stopping = new AbortController();
  let currentSweep: Promise<void> | undefined;
  const timer = setInterval(() => {
    currentSweep ??= sweepAll().finally(() => {
      currentSweep = undefined;
    });
  }, everyMinutes * 60_000);

  async function sweepAll(): Promise<void> {
    try {
      while (!stopping.signal.aborted && (await sweep(database, deploymentId, stopping.signal)) > 0);
    } catch (err) {
      if (stopping.signal.aborted) return;
      logger.warn({ err, what }, 'expired rows could not be removed: retrying');
    }
  }

  return {
    async stop() {
      stopping.abort();
      clearInterval(timer);
      await currentSweep;
    },
  };
}
