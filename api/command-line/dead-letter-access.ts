import { loadConfig } from '../../infra/config/load.ts';
import type { DeadLetterQueue, DeadLetterRecord } from '../../infra/event-log/event-log.ts';
import { openJobs } from '../../infra/jobs/open-jobs.ts';
import { createLogger } from '../../infra/telemetry/logger.ts';
import { trustedAuthorities } from '../../infra/tls/trusted-authorities.ts';
import { replayThroughJob } from '../../pipelines/dead-letters/dead-letter-replays.ts';
import { topics } from '../../schemas/topics.ts';
import { Ends } from './ends.ts';
import { openDeadLetters } from './open-dead-letters.ts';
import { openEventLog } from './open-event-log.ts';
import { findStores, openStores, type Stores } from './open-stores.ts';

/** Access to the dead-letter queue of this installation, for reading and replaying. */
export interface DeadLetterAccess {
  readonly deadLetters: DeadLetterQueue;
  readonly stores: Stores;
  readonly schemaOf: (schemaId: number) => Promise<string | undefined>;
  readonly publish: (deadLetter: DeadLetterRecord) => Promise<void>;
}

/**
 * Opens the dependencies of a dead-letter command and closes them when `work` has finished.
 * @throws NOT_RUNNING and the errors of the dependencies.
 */
export async function withDeadLetters(work: (access: DeadLetterAccess) => Promise<void>): Promise<void> {
  const { config } = loadConfig();
  const logger = createLogger('error', 'dlq');
  const addresses = await findStores(config);
  const stores = openStores(addresses, config, logger);
  const ends = new Ends();
  ends.add('stores', () => stores.close());
  try {
    const deadLetters = await openDeadLetters({ config, logger, stores }, ends);
    if (config.kafkaBrokers === undefined) {
      const jobs = async () => {
        const { redisUrl } = config;
        const authorities = trustedAuthorities(config);
        const opened = await openJobs({ databaseUrl: addresses.databaseUrl, redisUrl, authorities, logger });
        ends.add('jobs', () => opened.close());
        return opened;
      };
      let opened: ReturnType<typeof jobs> | undefined;
      await work({
        deadLetters,
        stores,
        schemaOf: async (schemaId) => topics[schemaId - 1]?.schema,
        publish: async (deadLetter) => {
          opened ??= jobs();
          await replayThroughJob(deadLetter, { jobs: await opened, database: stores.database });
        },
      });
      return;
    }
    const { SchemaRegistry } = await import('../../infra/event-log/kafka/schema-registry.ts');
    const registry = new SchemaRegistry(config);
    let log: ReturnType<typeof openEventLog> | undefined;
    await work({
      deadLetters,
      stores,
      schemaOf: (schemaId) => registry.textOf(schemaId),
      publish: async ({ topic: name, key, value, headers }) => {
        log ??= openEventLog({ config, logger, stores }, ends);
        const topic = topics.find((known) => known.name === name);
        if (topic !== undefined) await (await log).log.publish(topic, [{ key, value, headers }]);
      },
    });
  } finally {
    await ends.run(logger);
  }
}
