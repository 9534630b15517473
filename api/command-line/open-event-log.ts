import type { Config } from '../../infra/config/settings.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { DeadLetterQueue, EventLog } from '../../infra/event-log/event-log.ts';

import { openInProcessLog } from '../../infra/event-log/in-process/in-process-log.ts';
import { postgresDeadLetterQueue } from '../../infra/event-log/in-process/dead-letter-queue.ts';
import { type SessionLock, takeSessionLock } from '../../infra/postgres/session-lock.ts';
import type { HealthCheck } from '../../infra/telemetry/health.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import { trustedAuthorities } from '../../infra/tls/trusted-authorities.ts';
import { topics } from '../../schemas/topics.ts';
import type { Ends } from './ends.ts';
import type { Stores } from './open-stores.ts';

/** Partitions of each topic of the in-process log: one process reads it, and gains nothing from more. */
const partitions = 1;

interface OpenedLog {
  readonly log: EventLog;
  readonly healthChecks: readonly HealthCheck[];
}

interface LogParts {
  readonly config: Config;
  readonly logger: Logger;
  readonly stores: Stores;
}

/**
 * Opens the event log: Kafka if brokers are configured (its code is loaded only then), otherwise the in-process log.
 * @throws their errors.
 */
export async function openEventLog({ config, logger, stores }: LogParts, ends: Ends): Promise<OpenedLog> {
  if (config.kafkaBrokers !== undefined) {
    const { openKafkaLog } = await import('../../infra/event-log/kafka/kafka-log.ts');
    const log = await openKafkaLog({ config, topics, logger });
    ends.add('event log', () => log.close());
    return { log, healthChecks: log.healthChecks() };
  }
  const { database } = stores;
  const { maxPendingBytes } = config;
  const log = await openInProcessLog({ database, topics, partitions, maxPendingBytes, logger });
  ends.add('event log', () => log.close());
  return { log, healthChecks: [{ name: 'event_log', check: () => log.check() }] };
}

/** Opens the dead-letter queue of the configured event log. Connects at first use. */
export async function openDeadLetters({ config, logger, stores }: LogParts, ends: Ends): Promise<DeadLetterQueue> {
  if (config.kafkaBrokers === undefined) return postgresDeadLetterQueue(stores.database);
  const { openKafkaDeadLetterQueue } = await import('../../infra/event-log/kafka/dead-letter-queue.ts');
  const deadLetters = openKafkaDeadLetterQueue({ config, topics, logger });
  ends.add('dead letters', () => deadLetters.close());
  return deadLetters;
}

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
