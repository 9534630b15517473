import type { Config } from '../../infra/config/settings.ts';
import type { EventLog } from '../../infra/event-log/event-log.ts';
import { openInProcessLog } from '../../infra/event-log/in-process/in-process-log.ts';
import type { HealthCheck } from '../../infra/telemetry/health.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import { topics } from '../../schemas/topics.ts';
import type { Ends } from './ends.ts';
import type { Stores } from './open-stores.ts';

/** Partitions of each topic of the in-process log: one process reads it, and gains nothing from more. */
const partitions = 1;

export interface OpenedLog {
  readonly log: EventLog;
  readonly healthChecks: readonly HealthCheck[];
}

/**
 * Opens the event log: Kafka if brokers are configured (its code is loaded only then), otherwise the in-process log.
 * @throws their errors.
 */
export async function openEventLog(
  { config, logger, stores }: { readonly config: Config; readonly logger: Logger; readonly stores: Stores },
  ends: Ends,
): Promise<OpenedLog> {
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
