import type { Database } from '../../infra/postgres/database.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import { deleteExpiredItems } from './store/delete-items.ts';
import { expireThreads } from './threads/expire-threads.ts';

const everyMs = 30_000;
/** Each takes a bounded number away, and is repeated until nothing is left. */
const sweeps = { threads: expireThreads, 'items of the store': deleteExpiredItems };

/** Takes away what has run out, twice a minute: threads, and items of the store. Any number of processes may do so. */
export function startExpiry(ports: {
  readonly database: Database;
  readonly organizationId: string;
  readonly logger: Logger;
}): { stop(): Promise<void> } {
  const { database, organizationId, logger } = ports;
  let stopping = false;
  let looking: Promise<void> | undefined;
  const timer = setInterval(() => {
    looking ??= look().finally(() => {
      looking = undefined;
    });
  }, everyMs);

  async function look(): Promise<void> {
    for (const [what, sweep] of Object.entries(sweeps)) {
      try {
        while (!stopping && (await sweep(database, organizationId)) > 0);
      } catch (err) {
        logger.warn({ err, what }, 'what has run out could not be taken away: trying again');
      }
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
