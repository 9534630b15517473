import type { Config } from '../../infra/config/settings.ts';
import type { DeadLetterQueue } from '../../infra/event-log/event-log.ts';
import { postgresDeadLetterQueue } from '../../infra/event-log/in-process/dead-letter-queue.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import { topics } from '../../schemas/topics.ts';
import type { Ends } from './ends.ts';
import type { Stores } from './open-stores.ts';

/** Opens the dead-letter queue of the configured event log. Connects at first use. */
export async function openDeadLetters(
  { config, logger, stores }: { readonly config: Config; readonly logger: Logger; readonly stores: Stores },
  ends: Ends,
): Promise<DeadLetterQueue> {
  if (config.kafkaBrokers === undefined) return postgresDeadLetterQueue(stores.database);
  const { openKafkaDeadLetterQueue } = await import('../../infra/event-log/kafka/dead-letter-queue.ts');
  const deadLetters = openKafkaDeadLetterQueue({ config, topics, logger });
  ends.add('dead letters', () => deadLetters.close());
  return deadLetters;
}
