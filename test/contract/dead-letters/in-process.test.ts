import { openPostgresDeadLetterQueue } from '../../../infra/event-log/in-process/dead-letter-queue.ts';
import { openInProcessLog } from '../../../infra/event-log/in-process/in-process-log.ts';
import { topics } from '../../../schemas/topics.ts';
import { freshStores } from '../../engines/stores.ts';
import { logger } from '../../silent-logger.ts';
import { deadLettersContract } from './dead-letters-contract.ts';

deadLettersContract('in-process', async () => {
  const stores = await freshStores();
  const { clickhouse, database } = stores;
  const log = await openInProcessLog({
    clickhouse,
    database,
    topics,
    partitions: 2,
    maxPendingBytes: 2 ** 20,
    logger,
  });
  return {
    deadLetters: openPostgresDeadLetterQueue(database),
    database,
    store: (topic, record, reason, step) => log.deadLetter(topic, record, reason, step),
    async close() {
      await log.close();
      await stores.close();
    },
  };
});
