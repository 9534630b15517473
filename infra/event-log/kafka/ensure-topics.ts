// Node does not see all names of this package; those that it does not see are members of the default one.
import kafkajs, { type Admin } from 'kafkajs';
import type { Config } from '../../config/settings.ts';
import { fault } from '../../errors/runlake-error.ts';
import type { Logger } from '../../telemetry/logger.ts';
import { kindsOf } from './client-fault.ts';
import { pause } from './pause.ts';

export type TopicWishes = Pick<Config, 'kafkaBrokers' | 'kafkaPartitions' | 'kafkaReplication' | 'maxRunBytes'>;

/** What surrounds the value of a record: key, headers, framing of the batch. */
export const recordSlackBytes = 64 * 1024;
/** Headers that a dead letter adds. */
const letterSlackBytes = 64 * 1024;
/** From here on a record that only one replica has is not safe enough. */
const replicasWithQuorum = 3;
const metadataAttempts = 50;

export interface TopicToHave {
  readonly name: string;
  readonly deadLetters: boolean;
}

/**
 * Creates those of `topics` that do not exist, and asks the leader of each partition. A topic that exists is left as it is.
 *
 * @returns partitions of each, by name.
 * @throws TOPIC_UNFIT if a run of the maximum size would not fit, and what Kafka throws.
 */
export async function ensureTopics(
  admin: Admin,
  topics: readonly TopicToHave[],
  wishes: TopicWishes,
  logger: Logger,
): Promise<ReadonlyMap<string, number>> {
  const present = new Set(await admin.listTopics());
  const missing = topics.filter(({ name }) => !present.has(name));
  if (missing.length > 0) await create(admin, missing, wishes);
  const shapes = await shapesOf(
    admin,
    topics.map(({ name }) => name),
    wishes.kafkaBrokers,
  );
  await compare(admin, topics, shapes, wishes, logger);
  // A broker that was just elected may not know yet that it leads: it is asked, so that the first publish and the first tail meet a leader.
  await Promise.all(topics.map(({ name }) => admin.fetchTopicOffsets(name)));
  return new Map([...shapes].map(([name, { partitions }]) => [name, partitions]));
}

export function maxMessageBytes({ deadLetters }: TopicToHave, { maxRunBytes }: Pick<Config, 'maxRunBytes'>): number {
  return maxRunBytes + recordSlackBytes + (deadLetters ? letterSlackBytes : 0);
}

async function create(admin: Admin, missing: readonly TopicToHave[], wishes: TopicWishes): Promise<void> {
  const { kafkaPartitions, kafkaReplication } = wishes;
  const replicas = kafkaReplication ?? (await defaultReplication(admin));
  try {
    await admin.createTopics({
      waitForLeaders: true,
      topics: missing.map((topic) => ({
        topic: topic.name,
        numPartitions: kafkaPartitions,
        replicationFactor: kafkaReplication ?? -1,
        configEntries: [
          { name: 'max.message.bytes', value: String(maxMessageBytes(topic, wishes)) },
          ...(replicas >= replicasWithQuorum ? [{ name: 'min.insync.replicas', value: '2' }] : []),
        ],
      })),
    });
  } catch (error) {
    // Another process may create the same at this moment.
    const kinds = kindsOf(error).concat(...((error as { errors?: unknown[] }).errors ?? []).map(kindsOf));
    const harmless = [
      'TOPIC_ALREADY_EXISTS',
      'LEADER_NOT_AVAILABLE',
      'KafkaJSAggregateError',
      'KafkaJSCreateTopicError',
    ];
    if (!kinds.some((kind) => kind === 'TOPIC_ALREADY_EXISTS')) throw error;
    if (kinds.some((kind) => /^[A-Z_]+$/.test(kind) && !harmless.includes(kind))) throw error;
  }
}

/** Of topics that name none; 0 if this user may not ask, and {@link compare} then warns of a quorum that is too small. */
async function defaultReplication(admin: Admin): Promise<number> {
  const { controller } = await admin.describeCluster();
  try {
    const { resources } = await admin.describeConfigs({
      includeSynonyms: false,
      resources: [
        {
          type: kafkajs.ConfigResourceTypes.BROKER,
          name: String(controller ?? 0),
          configNames: ['default.replication.factor'],
        },
      ],
    });
    return Number(resources[0]?.configEntries[0]?.configValue ?? 0);
  } catch (error) {
    if (!kindsOf(error).some((kind) => kind.endsWith('AUTHORIZATION_FAILED'))) throw error;
    return 0;
  }
}

interface Shape {
  readonly partitions: number;
  readonly replicas: number;
}

/** A topic that was created is known to every broker a little later. */
async function shapesOf(
  admin: Admin,
  names: readonly string[],
  brokers: string | undefined,
): Promise<Map<string, Shape>> {
  for (let attempt = 0; ; attempt++) {
    try {
      const { topics } = await admin.fetchTopicMetadata({ topics: [...names] });
      if (topics.length === names.length && topics.every(({ partitions }) => partitions.length > 0)) {
        return new Map(
          topics.map(({ name, partitions }) => [
            name,
            { partitions: partitions.length, replicas: Math.min(...partitions.map((each) => each.replicas.length)) },
          ]),
        );
      }
    } catch (error) {
      if (attempt >= metadataAttempts || !kindsOf(error).includes('UNKNOWN_TOPIC_OR_PARTITION')) throw error;
    }
    if (attempt >= metadataAttempts) {
      // Passes: brokers that restart or elect leaders learn of a topic later.
      const reason = `the brokers do not know the topics yet: ${names.join(', ')}`;
      throw fault('KAFKA_UNAVAILABLE', { brokers: brokers ?? '', reason });
    }
    await pause(100);
  }
}

async function compare(
  admin: Admin,
  topics: readonly TopicToHave[],
  shapes: ReadonlyMap<string, Shape>,
  wishes: TopicWishes,
  logger: Logger,
): Promise<void> {
  const configs = await settingsOf(admin, topics, logger);
  for (const topic of topics) {
    const { partitions, replicas } = shapes.get(topic.name) as Shape;
    const config = configs.get(topic.name);
    const largest = Number(config?.get('max.message.bytes') ?? Number.POSITIVE_INFINITY);
    const needed = maxMessageBytes(topic, wishes);
    if (largest < needed) {
      throw fault('TOPIC_UNFIT', {
        topic: topic.name,
        property: 'max.message.bytes',
        found: largest,
        needed,
        variable: 'RUNLAKE_MAX_RUN_BYTES',
      });
    }
    const differs = { topic: topic.name, partitions, replicas };
    if (partitions !== wishes.kafkaPartitions) {
      logger.warn(
        differs,
        `the topic does not have the ${wishes.kafkaPartitions} partitions configured: left as it is`,
      );
    }
    if (wishes.kafkaReplication !== undefined && replicas < wishes.kafkaReplication) {
      logger.warn(differs, `the topic does not have the ${wishes.kafkaReplication} replicas configured: left as it is`);
    }
    const quorum = Number(config?.get('min.insync.replicas') ?? 2);
    if (replicas >= replicasWithQuorum && quorum < 2) {
      logger.warn(differs, 'min.insync.replicas of the topic is 1: a broker that fails may lose what was accepted');
    }
  }
}

async function settingsOf(
  admin: Admin,
  topics: readonly TopicToHave[],
  logger: Logger,
): Promise<ReadonlyMap<string, ReadonlyMap<string, string>>> {
  try {
    const { resources } = await admin.describeConfigs({
      includeSynonyms: false,
      resources: topics.map(({ name }) => ({
        type: kafkajs.ConfigResourceTypes.TOPIC,
        name,
        configNames: ['max.message.bytes', 'min.insync.replicas'],
      })),
    });
    return new Map(
      resources.map((resource) => [
        resource.resourceName,
        new Map(resource.configEntries.map(({ configName, configValue }) => [configName, configValue])),
      ]),
    );
  } catch (error) {
    if (!kindsOf(error).some((kind) => kind.endsWith('AUTHORIZATION_FAILED'))) throw error;
    logger.warn('this user may not read the settings of the topics: they are taken to be right');
    return new Map();
  }
}
