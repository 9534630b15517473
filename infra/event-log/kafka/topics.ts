/** The topics in Kafka: their names, and how startup creates and checks them. */
// Node does not detect all named exports of this CommonJS package; the others are properties of the default export.
import kafkajs, { type Admin } from 'kafkajs';
import type { Topic } from '../../../schemas/topics.ts';
import type { Config } from '../../config/settings.ts';
import { runlakeError } from '../../errors/runlake-error.ts';
import type { Logger } from '../../telemetry/logger.ts';
import { pause } from '../../timeouts/backoff.ts';
import { hasErrorName, listErrorNames } from './client.ts';

/** Names of topics, schema subjects and groups in Kafka. Installations that share a cluster have different prefixes. */
export interface TopicNames {
  of(topic: Topic): string;
  deadLetterTopic(topic: Topic): string;
  schemaSubject(topic: Topic): string;
  group(name: string): string;
}

export function buildTopicNames(prefix: string): TopicNames {
  return {
    of: ({ name }) => prefix + name,
    deadLetterTopic: ({ name }) => `${prefix}${name}-dead-letters`,
    schemaSubject: ({ name }) => `${prefix}${name}-value`,
    group: (name) => prefix + name,
  };
}

type TopicConfig = Pick<Config, 'kafkaBrokers' | 'kafkaPartitions' | 'kafkaReplication' | 'maxRunBytes'>;

/** Bytes reserved for a record in addition to its value: key, headers, batch framing. */
const recordSlackBytes = 64 * 1024;
/** Bytes reserved for the headers that a dead-letter record adds. */
const deadLetterSlackBytes = 64 * 1024;
/** Topics with at least this many replicas get `min.insync.replicas` 2. */
const minReplicasForQuorum = 3;
const metadataAttempts = 50;
const timestampTypeSetting = 'message.timestamp.type';
const appendTime = 'LogAppendTime';
const compressionSetting = 'compression.type';
/** Compression in which the client cannot read batches. Brokers compress all batches as the topic says. */
const unreadableCompressions = ['lz4', 'snappy', 'zstd'];

export interface RequiredTopic {
  readonly name: string;
  readonly deadLetters: boolean;
}

/**
 * Lists the topics that must exist in Kafka: for each topic, one for its events and one for its dead-letter records.
 */
export function listRequiredTopics(topics: readonly Topic[], names: TopicNames): RequiredTopic[] {
  return topics.flatMap((topic) => [
    { name: names.of(topic), deadLetters: false },
    { name: names.deadLetterTopic(topic), deadLetters: true },
  ]);
}

/**
 * Creates the topics that do not exist, and waits until each partition has a leader. Does not alter existing topics.
 *
 * @returns the number of partitions of each topic, by name.
 * @throws the errors of {@link requireUsableTopics} and of Kafka.
 */
export async function ensureTopics(
  admin: Admin,
  topics: readonly RequiredTopic[],
  config: TopicConfig,
  logger: Logger,
): Promise<ReadonlyMap<string, number>> {
  const present = new Set(await admin.listTopics());
  const missing = topics.filter(({ name }) => !present.has(name));
  if (missing.length > 0) await createTopics(admin, missing, config);
  const shapes = await fetchShapes(
    admin,
    topics.map(({ name }) => name),
    config.kafkaBrokers,
  );
  await checkTopics(admin, topics, shapes, config, logger);
  // A newly elected broker may not know yet that it is the leader. Fetch offsets, so that the first publish and the
  // first read find a leader.
  await Promise.all(topics.map(({ name }) => admin.fetchTopicOffsets(name)));
  return new Map([...shapes].map(([name, { partitions }]) => [name, partitions]));
}

/** Returns the minimum value of `max.message.bytes` for the topic. */
function computeMaxMessageBytes({ deadLetters }: RequiredTopic, { maxRunBytes }: Pick<Config, 'maxRunBytes'>): number {
  return maxRunBytes + recordSlackBytes + (deadLetters ? deadLetterSlackBytes : 0);
}

async function createTopics(admin: Admin, missing: readonly RequiredTopic[], config: TopicConfig): Promise<void> {
  const { kafkaPartitions, kafkaReplication } = config;
  const replicas = kafkaReplication ?? (await fetchDefaultReplication(admin));
  try {
    await admin.createTopics({
      waitForLeaders: true,
      topics: missing.map((topic) => ({
        topic: topic.name,
        numPartitions: kafkaPartitions,
        replicationFactor: kafkaReplication ?? -1,
        configEntries: [
          { name: 'max.message.bytes', value: String(computeMaxMessageBytes(topic, config)) },
          // Events are ordered by the time at which the broker appended them (`LogRecord.version`).
          { name: timestampTypeSetting, value: appendTime },
          // The brokers may have another default.
          { name: compressionSetting, value: 'producer' },
          ...(replicas >= minReplicasForQuorum ? [{ name: 'min.insync.replicas', value: '2' }] : []),
        ],
      })),
    });
  } catch (error) {
    // Another process may create the same topics at the same time.
    const kinds = listErrorNames(error).concat(...((error as { errors?: unknown[] }).errors ?? []).map(listErrorNames));
    const harmlessErrorNames = [
      'TOPIC_ALREADY_EXISTS',
      'LEADER_NOT_AVAILABLE',
      'KafkaJSAggregateError',
      'KafkaJSCreateTopicError',
    ];
    if (!kinds.includes('TOPIC_ALREADY_EXISTS')) throw error;
    if (kinds.some((kind) => /^[A-Z_]+$/.test(kind) && !harmlessErrorNames.includes(kind))) throw error;
  }
}

/**
 * Returns the broker's `default.replication.factor`, or 0 if this user has no permission to read it. {@link
 * checkTopics} then warns if the quorum is too small.
 */
async function fetchDefaultReplication(admin: Admin): Promise<number> {
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
    if (!isDenied(error)) throw error;
    return 0;
  }
}

interface TopicShape {
  readonly partitions: number;
  readonly replicas: number;
}

/** Fetches partitions and replicas of the topics. Retries, because brokers learn of new topics with a delay. */
async function fetchShapes(
  admin: Admin,
  names: readonly string[],
  brokers: string | undefined,
): Promise<Map<string, TopicShape>> {
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
      if (attempt >= metadataAttempts || !hasErrorName(error, ['UNKNOWN_TOPIC_OR_PARTITION'])) throw error;
    }
    if (attempt >= metadataAttempts) {
      // Transient: brokers that are restarting or electing leaders do not know the topics yet.
      const reason = `the brokers do not have the topics yet: ${names.join(', ')}`;
      throw runlakeError('KAFKA_UNAVAILABLE', { brokers: brokers ?? '', reason });
    }
    await pause(100);
  }
}

/**
 * Checks the settings of existing topics. Logs a warning for each unsuitable setting with which a topic can be used.
 *
 * @throws the errors of {@link requireUsableTopics}
 */
async function checkTopics(
  admin: Admin,
  topics: readonly RequiredTopic[],
  shapes: ReadonlyMap<string, TopicShape>,
  config: TopicConfig,
  logger: Logger,
): Promise<void> {
  const found = await fetchTopicSettings(admin, topics).catch((error: unknown) => {
    if (!isDenied(error)) throw error;
    logger.warn('this Kafka user may not read topic configurations; Runlake does not check them');
    return new Map<string, TopicSettings>();
  });
  requireUsableTopics(topics, found, config);
  for (const topic of topics) {
    const { partitions, replicas } = shapes.get(topic.name) as TopicShape;
    const topicFields = { topic: topic.name, partitions, replicas };
    if (partitions !== config.kafkaPartitions) {
      logger.warn(
        topicFields,
        `the topic does not have the configured ${config.kafkaPartitions} partitions; Runlake does not alter it`,
      );
    }
    if (config.kafkaReplication !== undefined && replicas < config.kafkaReplication) {
      logger.warn(
        topicFields,
        `the topic does not have the configured ${config.kafkaReplication} replicas; Runlake does not alter it`,
      );
    }
    if (!topic.deadLetters && (found.get(topic.name)?.timestampType ?? appendTime) !== appendTime) {
      logger.warn(
        topicFields,
        `${timestampTypeSetting} of the topic is not ${appendTime}: events are ordered by the clocks of the API processes`,
      );
    }
    const quorum = found.get(topic.name)?.minInsyncReplicas ?? 2;
    if (replicas >= minReplicasForQuorum && quorum < 2) {
      logger.warn(
        topicFields,
        'min.insync.replicas of the topic is 1: accepted events may be lost when a broker fails',
      );
    }
  }
}

/** Settings of a topic in Kafka. A number is NaN if the broker does not return it. */
export interface TopicSettings {
  readonly maxMessageBytes: number;
  readonly minInsyncReplicas: number;
  readonly timestampType: string | undefined;
  readonly compressionType: string | undefined;
}

export async function fetchTopicSettings(
  admin: Admin,
  topics: readonly RequiredTopic[],
): Promise<Map<string, TopicSettings>> {
  const configNames = ['max.message.bytes', 'min.insync.replicas', timestampTypeSetting, compressionSetting];
  const { resources } = await admin.describeConfigs({
    includeSynonyms: false,
    resources: topics.map(({ name }) => ({ type: kafkajs.ConfigResourceTypes.TOPIC, name, configNames })),
  });
  return new Map(
    resources.map(({ resourceName, configEntries }) => {
      const values = new Map(configEntries.map(({ configName, configValue }) => [configName, configValue]));
      const readNumber = (name: string) => Number(values.get(name) ?? Number.NaN);
      const settings: TopicSettings = {
        maxMessageBytes: readNumber('max.message.bytes'),
        minInsyncReplicas: readNumber('min.insync.replicas'),
        timestampType: values.get(timestampTypeSetting),
        compressionType: values.get(compressionSetting),
      };
      return [resourceName, settings];
    }),
  );
}

/**
 * @throws TOPIC_UNUSABLE if a run of the maximum size does not fit into one of the topics, or the client cannot read what its
 *   brokers compress.
 */
export function requireUsableTopics(
  topics: readonly RequiredTopic[],
  settings: ReadonlyMap<string, TopicSettings>,
  config: Pick<Config, 'maxRunBytes'>,
): void {
  for (const topic of topics) {
    const needed = computeMaxMessageBytes(topic, config);
    const { maxMessageBytes = needed, compressionType = '' } = settings.get(topic.name) ?? {};
    if (maxMessageBytes < needed) {
      const variable = 'RUNLAKE_MAX_RUN_BYTES';
      const property = 'max.message.bytes';
      throw runlakeError('TOPIC_UNUSABLE', { topic: topic.name, property, found: maxMessageBytes, needed, variable });
    }
    if (unreadableCompressions.includes(compressionType)) {
      const variable = 'RUNLAKE_KAFKA_TOPIC_PREFIX';
      const wrong = { property: compressionSetting, found: compressionType, needed: 'producer, gzip or uncompressed' };
      throw runlakeError('TOPIC_UNUSABLE', { topic: topic.name, ...wrong, variable });
    }
  }
}

/** Returns true if Kafka refused a request because this user has no permission. */
function isDenied(error: unknown): boolean {
  return listErrorNames(error).some((kind) => kind.endsWith('AUTHORIZATION_FAILED'));
}
