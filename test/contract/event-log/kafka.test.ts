import { describe } from 'vitest';
import { openKafkaDeadLetterQueue } from '../../../infra/event-log/kafka/dead-letter-queue.ts';
import { runEvents } from '../../../schemas/topics.ts';
import { freshStores } from '../../engines/stores.ts';
import { type KafkaServers, kafkaServers, openKafkaUnderTest } from '../../infra/event-log/kafka/kafka-under-test.ts';
import { logger } from '../../silent-logger.ts';
import { eventLogContract, type LogUnderTest } from './event-log-contract.ts';

const servers = kafkaServers();

async function open(): Promise<LogUnderTest> {
  const stores = await freshStores();
  const kafka = await openKafkaUnderTest(servers as KafkaServers);
  const log = await kafka.open({}, [runEvents]);
  return {
    log,
    reopened: () => kafka.open({}, [runEvents]),
    async deadLetters() {
      const deadLetters = openKafkaDeadLetterQueue({
        countReplays: async () => 0,
        config: kafka.config,
        topics: [runEvents],
        logger,
      });
      try {
        const heads = await deadLetters.list({ topics: [runEvents] }, 100);
        const once = new Map(heads.map((head) => [`${head.topic}/${head.partition}/${head.offset}`, head]));
        const found = await Promise.all([...once.values()].map(({ id }) => deadLetters.find(id)));
        return found.flatMap((deadLetter) => (deadLetter ? [deadLetter] : []));
      } finally {
        await deadLetters.close();
      }
    },
    async close() {
      await kafka.close();
      await stores.close();
    },
  };
}

describe.runIf(servers)('on real servers', () => eventLogContract('Kafka', open));
