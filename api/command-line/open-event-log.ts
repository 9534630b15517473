import type { Config } from '../../infra/config/settings.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { DeadLetterQueue, EventLog } from '../../infra/event-log/event-log.ts';
import { openPostgresDeadLetterQueue } from '../../infra/event-log/in-process/dead-letter-queue.ts';
import { openInProcessLog } from '../../infra/event-log/in-process/in-process-log.ts';
import { readLogPosition } from '../../infra/event-log/in-process/log-table.ts';
import { acquireSessionLock, type SessionLock } from '../../infra/postgres/session-lock.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import type { HealthCheck } from '../../infra/telemetry/telemetry-server.ts';
import { readTrustedAuthorities } from '../../infra/tls/trusted-authorities.ts';
import { countReplays } from '../../pipelines/dead-letters/dead-letter-replays.ts';
import { topics } from '../../schemas/topics.ts';
import type { Stores } from './open-stores.ts';
import type { ShutdownSteps } from './shutdown-steps.ts';

/**
 * Number of partitions of each topic of the in-process log. More partitions would not help, because one process reads
 * the whole log.
 */
const partitionCount = 1;

interface OpenedLog {
  readonly log: EventLog;
  readonly healthChecks: readonly HealthCheck[];
}

interface EventLogDeps {
  readonly config: Config;
  readonly logger: Logger;
  readonly stores: Stores;
}

/**
 * Opens the event log: Kafka if brokers are configured, otherwise the in-process log. Loads the Kafka code only if
 * Kafka is used.
 *
 * @throws the errors of the opened log.
 */
export async function openEventLog(
  { config, logger, stores }: EventLogDeps,
  shutdown: ShutdownSteps,
): Promise<OpenedLog> {
  if (config.kafkaBrokers !== undefined) {
    const { openKafkaLog } = await import('../../infra/event-log/kafka/kafka-log.ts');
    const log = await openKafkaLog({ config, topics, logger });
    shutdown.add('event log', () => log.close());
    return { log, healthChecks: log.healthChecks() };
  }
  const { clickhouse, database } = stores;
  const { maxPendingBytes } = config;
  const log = await openInProcessLog({
    clickhouse,
    database,
    topics,
    partitions: partitionCount,
    maxPendingBytes,
    logger,
  });
  shutdown.add('event log', () => log.close());
  return { log, healthChecks: [{ name: 'event_log', check: () => log.check() }] };
}

/**
 * Ensures that the in-process log has no events if Kafka is configured, because no process would store them.
 *
 * @throws EVENTS_NOT_STORED and the errors of ClickHouse.
 */
export async function refuseUnstoredEvents({ config, stores }: Pick<EventLogDeps, 'config' | 'stores'>): Promise<void> {
  if (config.kafkaBrokers === undefined) return;
  for (const { name } of topics) {
    const position = await readLogPosition(stores.clickhouse, name);
    if (Object.keys(position).length > 0) throw runlakeError('EVENTS_NOT_STORED', { topic: name });
  }
}

/** Opens the dead-letter queue of the configured event log. Connects at first use. */
export async function openDeadLetters(
  { config, logger, stores }: EventLogDeps,
  shutdown: ShutdownSteps,
): Promise<DeadLetterQueue> {
  if (config.kafkaBrokers === undefined) return openPostgresDeadLetterQueue(stores.database);
  const { openKafkaDeadLetterQueue } = await import('../../infra/event-log/kafka/dead-letter-queue.ts');
  const deadLetters = openKafkaDeadLetterQueue({
    ...{ config, topics, logger },
    countReplays: (topic, ranges) => countReplays(stores.database, topic, ranges),
  });
  shutdown.add('dead letters', () => deadLetters.close());
  return deadLetters;
}

/** Key of the advisory lock on a database. Only one process with an in-process log may use the database at a time. */
const logLockKey = 7_215_508_432;

/**
 * Prevents a second process with an in-process log from using the database. Otherwise the sinks of both processes would
 * assign trace locations independently, and each process would treat the events of the other one as left over from a
 * dead process.
 *
 * @throws LOG_IN_USE
 */
export async function lockDatabase(url: string, config: Config, logger: Logger): Promise<SessionLock> {
  const lock = await acquireSessionLock({ url, authorities: readTrustedAuthorities(config), key: logLockKey, logger });
  if (lock === undefined) {
    const { host, pathname } = new URL(url);
    throw runlakeError('LOG_IN_USE', { database: `${host}${pathname}` });
  }
  return lock;
}
