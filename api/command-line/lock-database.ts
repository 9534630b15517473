import type { Config } from '../../infra/config/settings.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { type SessionLock, takeSessionLock } from '../../infra/postgres/session-lock.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import { trustedAuthorities } from '../../infra/tls/trusted-authorities.ts';

/** Advisory lock key of the one process with the in-process log. */
const logLockKey = 7_215_508_432;

/**
 * Keeps a second process with an in-process log off the database: two sinks would assign trace locations independently
 * and treat each other's insert batches as those of a dead process. @throws LOG_IN_USE
 */
export async function lockDatabase(url: string, config: Config, logger: Logger): Promise<SessionLock> {
  const lock = await takeSessionLock({ url, authorities: trustedAuthorities(config), key: logLockKey, logger });
  if (lock === undefined) {
    const { host, pathname } = new URL(url);
    throw runlakeError('LOG_IN_USE', { database: `${host}${pathname}` });
  }
  return lock;
}
