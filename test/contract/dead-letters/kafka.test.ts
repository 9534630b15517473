import { randomBytes } from 'node:crypto';
import { Kafka, logLevel } from 'kafkajs';
import { describe } from 'vitest';
import { loadConfig } from '../../../infra/config/load.ts';
import { buildDeadLetterMessage, openKafkaDeadLetterQueue } from '../../../infra/event-log/kafka/dead-letter-queue.ts';
import { countReplays } from '../../../pipelines/dead-letters/dead-letter-replays.ts';
import { topics } from '../../../schemas/topics.ts';
import { stackPart } from '../../engines/stack.ts';
import { freshStores } from '../../engines/stores.ts';
import { until } from '../../infra/until.ts';
import { logger } from '../../silent-logger.ts';
import { deadLettersContract } from './dead-letters-contract.ts';

const kafkaPart = stackPart('kafka');

describe.runIf(kafkaPart)('on Kafka', () => {
  deadLettersContract('Kafka', async () => {
    const kafkaBrokers = String(kafkaPart?.brokers);
    const kafkaTopicPrefix = `test-${randomBytes(6).toString('hex')}.`;
    const kafka = new Kafka({ brokers: kafkaBrokers.split(','), clientId: 'test', logLevel: logLevel.NOTHING });
    const admin = kafka.admin();
    await admin.connect();
    const names = topics.map(({ name }) => `${kafkaTopicPrefix}${name}-dead-letters`);
    await admin.createTopics({ topics: names.map((topic) => ({ topic, numPartitions: 2 })), waitForLeaders: true });
    // Brokers report a topic before all of them can return its offsets.
    await until(
      'the topics',
      () =>
        Promise.all(names.map((name) => admin.fetchTopicOffsets(name))).then(
          () => true,
          () => false,
        ),
      30_000,
    );
    const producer = kafka.producer({ allowAutoTopicCreation: false });
    await producer.connect();
    const config = { ...loadConfig({}).config, kafkaBrokers, kafkaTopicPrefix };
    const stores = await freshStores();
    const { database } = stores;
    const deadLetters = openKafkaDeadLetterQueue({
      ...{ config, topics, logger },
      countReplays: (topic, ranges) => countReplays(database, topic, ranges),
    });
    return {
      ...{ deadLetters, database },
      store: async (topic, record, reason, step) => {
        const name = kafkaTopicPrefix + topic.name;
        const message = buildDeadLetterMessage(name, record, reason, step);
        await producer.send({
          topic: `${name}-dead-letters`,
          acks: -1,
          messages: [{ ...message, partition: record.partition }],
        });
      },
      async close() {
        await deadLetters.close();
        await producer.disconnect();
        await admin.deleteTopics({ topics: names });
        await admin.disconnect();
        await stores.close();
      },
    };
  });
});
