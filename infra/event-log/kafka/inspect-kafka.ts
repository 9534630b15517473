import kafkajs, { type Admin } from 'kafkajs';
import type { Topic } from '../../../schemas/topics.ts';
import type { Config } from '../../config/settings.ts';
import { runlakeError } from '../../errors/runlake-error.ts';
import type { Logger } from '../../telemetry/logger.ts';
import { type KafkaAddress, KafkaAdmin } from './client.ts';
import { maxMessageBytes } from './ensure-topics.ts';
import { topicNames } from './topic-names.ts';

export interface KafkaInspection {
  readonly config: KafkaAddress & Pick<Config, 'kafkaTopicPrefix' | 'maxRunBytes'>;
  readonly topics: readonly Topic[];
  readonly logger: Logger;
}

/**
 * Checks brokers, topics and topic configurations without changing anything.
 * @returns a summary for the operator. @throws KAFKA_UNAVAILABLE, ACCESS_DENIED_BY_STORE, TOPIC_UNUSABLE.
 */
export async function inspectKafka({ config, topics, logger }: KafkaInspection): Promise<string> {
  const link = new KafkaAdmin(config, logger);
  const names = topicNames(config.kafkaTopicPrefix);
  const wanted = topics.flatMap((topic) => [
    { name: names.of(topic), deadLetters: false },
    { name: names.deadLettersOf(topic), deadLetters: true },
  ]);
  try {
    const { brokers } = await link.call((admin) => admin.describeCluster());
    const existing = new Set(await link.call((admin) => admin.listTopics()));
    const present = wanted.filter(({ name }) => existing.has(name));
    let replication = '';
    if (present.length > 0) {
      const settings = await link.call((admin) =>
        settingsOf(
          admin,
          present.map(({ name }) => name),
        ),
      );
      for (const topic of present) {
        const needed = maxMessageBytes(topic, config);
        const found = settings.get(topic.name)?.maxMessageBytes ?? needed;
        if (found >= needed) continue;
        const variable = 'RUNLAKE_MAX_RUN_BYTES';
        throw runlakeError('TOPIC_UNUSABLE', {
          topic: topic.name,
          property: 'max.message.bytes',
          found,
          needed,
          variable,
        });
      }
      replication = `; ${await link.call((admin) => replicationOf(admin, settings))}`;
      // The sink describes its groups at every start; without the permission it would wait for ever.
      await link.call((admin) => admin.describeGroups(topics.map((topic) => names.group(`sink-${topic.table}`))));
    }
    const missing = wanted.length - present.length;
    const state =
      missing === 0
        ? 'all topics exist and are large enough'
        : `${missing} topics do not exist yet; Runlake creates them when it starts`;
    return `${brokers.length} broker(s) answer; ${state}${replication}`;
  } finally {
    await link.close();
  }
}

interface TopicSettings {
  readonly maxMessageBytes: number;
  readonly minInsyncReplicas: number;
}

async function settingsOf(admin: Admin, names: readonly string[]): Promise<Map<string, TopicSettings>> {
  const { resources } = await admin.describeConfigs({
    includeSynonyms: false,
    resources: names.map((name) => ({
      type: kafkajs.ConfigResourceTypes.TOPIC,
      name,
      configNames: ['max.message.bytes', 'min.insync.replicas'],
    })),
  });
  return new Map(
    resources.map(({ resourceName, configEntries }) => {
      const settingOf = (name: string) =>
        Number(configEntries.find(({ configName }) => configName === name)?.configValue ?? Number.NaN);
      return [
        resourceName,
        { maxMessageBytes: settingOf('max.message.bytes'), minInsyncReplicas: settingOf('min.insync.replicas') },
      ];
    }),
  );
}

/** Describes how safe accepted events are, by the topics with the fewest replicas and the smallest quorum. */
async function replicationOf(admin: Admin, settings: ReadonlyMap<string, TopicSettings>): Promise<string> {
  const { topics } = await admin.fetchTopicMetadata({ topics: [...settings.keys()] });
  const replicas = Math.min(...topics.flatMap(({ partitions }) => partitions.map((each) => each.replicas.length)));
  const quorum = Math.min(...[...settings.values()].map(({ minInsyncReplicas }) => minInsyncReplicas));
  const summary = `replicas ${replicas}, min.insync.replicas ${quorum}`;
  return quorum >= 2 ? summary : `${summary}: accepted events may be lost when a broker is lost`;
}
