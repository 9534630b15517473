import { randomBytes } from 'node:crypto';
import { type Admin, Kafka, logLevel, type Message, Partitioners } from 'kafkajs';
import { loadConfig } from '../../../../infra/config/load.ts';
import type { Config } from '../../../../infra/config/settings.ts';
import { type KafkaLog, openKafkaLog } from '../../../../infra/event-log/kafka/kafka-log.ts';
import { createLogger } from '../../../../infra/telemetry/logger.ts';
import { topics as allTopics, type Topic } from '../../../../schemas/topics.ts';
import { allocateKafkaTopics } from '../../../engines/own-servers.ts';
import { stackPart } from '../../../engines/stack.ts';
import { until } from '../../until.ts';

export interface KafkaServers {
  readonly brokers: string;
  readonly registryUrl: string;
}

/**
 * Returns Kafka and registry of the native stack; `undefined`, with the reason printed, if one of them is not running.
 */
export function kafkaServers(): KafkaServers | undefined {
  const kafka = stackPart('kafka');
  const registry = stackPart('registry');
  if (kafka === undefined || registry === undefined) return undefined;
  return { brokers: kafka.brokers as string, registryUrl: registry.url as string };
}

export interface ConsumedMessage {
  readonly partition: number;
  readonly offset: number;
  readonly value: Buffer | null;
}

export interface KafkaUnderTest {
  readonly config: Config;
  readonly admin: Admin;
  /** Returns the name of the topic in Kafka. */
  nameOf(topic: Topic): string;
  /** Opens a log on the same topics and groups; `close` of this object closes the log if it is still open. */
  open(overrides?: Partial<Config>, topics?: readonly Topic[]): Promise<KafkaLog>;
  /** Produces messages with a plain Kafka producer, without going through the log. */
  produce(topic: Topic, messages: readonly Message[]): Promise<void>;
  /** Consumes the first `count` messages of a topic, in partition order, as any other program would. */
  consume(topic: Topic, count: number): Promise<ConsumedMessage[]>;
  /** Closes the logs and deletes the topics. */
  close(): Promise<void>;
}

/** Opens logs with separate topics and groups on real servers. */
export async function openKafkaUnderTest(
  { brokers, registryUrl }: KafkaServers,
  overrides: Partial<Config> = {},
): Promise<KafkaUnderTest> {
  const name = `test-${randomBytes(6).toString('hex')}`;
  const own = allocateKafkaTopics(
    { clickhouseUrl: '', databaseUrl: '', kafkaBrokers: brokers, schemaRegistryUrl: registryUrl },
    name,
  );
  const config: Config = { ...loadConfig(own.environment).config, kafkaPartitions: 2, insertBatchMs: 50, ...overrides };
  const logger = createLogger((process.env.KAFKA_TEST_LOG as Config['logLevel'] | undefined) ?? 'silent', 'test');
  const kafka = new Kafka({ brokers: [brokers], clientId: 'test', logLevel: logLevel.NOTHING });
  const admin = kafka.admin();
  await admin.connect();
  const logs: KafkaLog[] = [];
  const nameOf = (topic: Topic) => config.kafkaTopicPrefix + topic.name;
  return {
    config,
    admin,
    nameOf,
    async open(changes = {}, topics = allTopics) {
      const log = await openKafkaLog({ config: { ...config, ...changes }, topics, logger });
      logs.push(log);
      return log;
    },
    async produce(topic, messages) {
      // The client drops messages for a partition that its broker does not know yet, without an error.
      const known = async () =>
        (await admin.fetchTopicMetadata({ topics: [nameOf(topic)] })).topics[0]?.partitions ?? [];
      const needed = Math.max(...messages.map(({ partition = 0 }) => partition)) + 1;
      await until('the partitions to be known', async () => (await known()).length >= needed, 30_000);
      const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner });
      await producer.connect();
      await producer.send({ topic: nameOf(topic), acks: -1, messages: [...messages] });
      await producer.disconnect();
    },
    async consume(topic, count) {
      const groupId = `${config.kafkaTopicPrefix}reader`;
      const consumer = kafka.consumer({ groupId });
      const found: ConsumedMessage[] = [];
      try {
        await consumer.connect();
        await consumer.subscribe({ topics: [nameOf(topic)], fromBeginning: true });
        await consumer.run({
          eachMessage: async ({ partition, message: { offset, value } }) => {
            found.push({ partition, offset: Number(offset), value });
          },
        });
        await until(`${count} messages`, () => found.length >= count, 60_000);
        return found;
      } finally {
        await consumer.disconnect();
        await admin.deleteGroups([groupId]);
      }
    },
    async close() {
      await Promise.all(logs.map((log) => log.close()));
      await admin.disconnect();
      await own.clear();
    },
  };
}
