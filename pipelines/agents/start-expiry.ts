import type { Database } from '../../infra/postgres/database.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';

/** Removes a bounded number of expired rows. @returns how many it removed. */
export type Sweep = (database: Database, deploymentId: string) => Promise<number>;

export interface ExpiryOptions {
  readonly database: Database;
  readonly deploymentId: string;
  /** Name of what expires, for the log. */
  readonly what: string;
  readonly sweep: Sweep;
  /** Default: 0.5. */
  readonly everyMinutes?: number | undefined;
  readonly logger: Logger;
}

/** Repeats `sweep` at an interval, each time until it removes no more rows. Several processes can do this at once. */
export function startExpiry(options: ExpiryOptions): { stop(): Promise<void> } {
  const { database, deploymentId, what, sweep, everyMinutes = 0.5, logger } = options;
  let stopping = false;
  let sweeping: Promise<void> | undefined;
  const timer = setInterval(() => {
    sweeping ??= sweepAll().finally(() => {
      sweeping = undefined;
    });
  }, everyMinutes * 60_000);

  async function sweepAll(): Promise<void> {
    try {
      while (!stopping && (await sweep(database, deploymentId)) > 0);
    } catch (err) {
      logger.warn({ err, what }, 'expired rows could not be removed: retrying');
    }
  }

  return {
    async stop() {
      stopping = true;
      clearInterval(timer);
      await sweeping;
    },
  };
}
