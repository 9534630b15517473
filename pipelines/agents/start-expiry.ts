import type { Database } from '../../infra/postgres/database.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';

/** Takes a bounded number away of what has run out. The result is how many. */
export type Sweep = (database: Database, deploymentId: string) => Promise<number>;

export interface ExpiryOptions {
  readonly database: Database;
  readonly deploymentId: string;
  /** For the log. */
  readonly what: string;
  readonly sweep: Sweep;
  /** Default: half a minute. */
  readonly everyMinutes?: number | undefined;
  readonly logger: Logger;
}

/** Takes away what has run out, again and again, all of it each time. Any number of processes may do so. */
export function startExpiry(options: ExpiryOptions): { stop(): Promise<void> } {
  const { database, deploymentId, what, sweep, everyMinutes = 0.5, logger } = options;
  let stopping = false;
  let looking: Promise<void> | undefined;
  const timer = setInterval(() => {
    looking ??= look().finally(() => {
      looking = undefined;
    });
  }, everyMinutes * 60_000);

  async function look(): Promise<void> {
    try {
      while (!stopping && (await sweep(database, deploymentId)) > 0);
    } catch (err) {
      logger.warn({ err, what }, 'what has run out could not be taken away: trying again');
    }
  }

  return {
    async stop() {
      stopping = true;
      clearInterval(timer);
      await looking;
    },
  };
}
