import type { Config } from '../../infra/config/settings.ts';
import { fault } from '../../infra/errors/runlake-error.ts';
import { type SessionLock, takeSessionLock } from '../../infra/postgres/session-lock.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import { trustedAuthorities } from '../../infra/tls/trusted-authorities.ts';

/** Of the lock that the one process with the in-process log has on its database. */
const logLockKey = 7_215_508_432;

/**
 * Keeps a second process with an in-process log off the database: two sinks would place traces each on its own, and take each
 * other's cuts for those of a dead process. @throws LOG_IN_USE
 */
export async function lockDatabase(url: string, config: Config, logger: Logger): Promise<SessionLock> {
  const lock = await takeSessionLock({ url, authorities: trustedAuthorities(config), key: logLockKey, logger });
  if (lock === undefined) {
    const { host, pathname } = new URL(url);
    throw fault('LOG_IN_USE', { database: `${host}${pathname}` });
  }
  return lock;
}
