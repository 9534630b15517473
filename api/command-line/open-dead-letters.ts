import type { Config } from '../../infra/config/settings.ts';
import type { DeadLetters } from '../../infra/event-log/dead-letters.ts';
import { storedDeadLetters } from '../../infra/event-log/in-process/stored-dead-letters.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import { topics } from '../../schemas/topics.ts';
import type { Ends } from './ends.ts';
import type { Stores } from './open-stores.ts';

/** Opens the dead-letter queue of the configured event log. Connects at first use. */
export async function openDeadLetters(
  { config, logger, stores }: { readonly config: Config; readonly logger: Logger; readonly stores: Stores },
  ends: Ends,
): Promise<DeadLetters> {
  if (config.kafkaBrokers === undefined) return storedDeadLetters(stores.database);
  const { openKafkaDeadLetters } = await import('../../infra/event-log/kafka/kafka-dead-letters.ts');
  const deadLetters = openKafkaDeadLetters({ config, topics, logger });
  ends.add('dead letters', () => deadLetters.close());
  return deadLetters;
}
