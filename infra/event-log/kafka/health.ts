/** Checks whether Kafka and the schema registry respond, and whether Runlake can use them. */
import type { Admin } from 'kafkajs';
import type { Topic } from '../../../schemas/topics.ts';
import type { Config } from '../../config/settings.ts';
import { runlakeError } from '../../errors/runlake-error.ts';
import type { Logger } from '../../telemetry/logger.ts';
import type { HealthCheck } from '../../telemetry/telemetry-server.ts';
import { getSinkGroup } from '../event-log.ts';
import { type KafkaAddress, KafkaAdmin } from './client.ts';
import { findPositions } from './partition-consumer.ts';
import { type RegistryAddress, SchemaRegistry } from './schema-registry.ts';
import {
  buildTopicNames,
  fetchTopicSettings,
  listRequiredTopics,
  requireUsableTopics,
  type TopicNames,
  type TopicSettings,
} from './topics.ts';

export function createKafkaHealthChecks(admin: KafkaAdmin, registry: SchemaRegistry): HealthCheck[] {
  return [
    { name: 'kafka', check: () => admin.call(async (client) => void (await client.describeCluster())) },
    { name: 'schema_registry', check: () => registry.check() },
  ];
}

/** Opens health checks for use before the log is open. Connects on the first check. @throws TLS_FILE_UNUSABLE */
export function openKafkaProbe(
  config: KafkaAddress & RegistryAddress,
  logger: Logger,
): { readonly healthChecks: readonly HealthCheck[]; close(): Promise<void> } {
  const admin = new KafkaAdmin(config, logger);
  const registry = new SchemaRegistry(config);
  return { healthChecks: createKafkaHealthChecks(admin, registry), close: () => admin.close() };
}

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
  const kafka = new KafkaAdmin(config, logger);
  const names = buildTopicNames(config.kafkaTopicPrefix);
  const required = listRequiredTopics(topics, names);
  try {
    const { brokers } = await kafka.call((admin) => admin.describeCluster());
    const existing = new Set(await kafka.call((admin) => admin.listTopics()));
    const present = required.filter(({ name }) => existing.has(name));
    let replication = '';
    let sinks: readonly string[] = [];
    if (present.length > 0) {
      const settings = await kafka.call((admin) => fetchTopicSettings(admin, present));
      requireUsableTopics(present, settings, config);
      replication = `; ${await kafka.call((admin) => describeReplication(admin, settings))}`;
      const known = topics.filter((topic) => existing.has(names.of(topic)));
      sinks = await kafka.call((admin) => describeSinks(admin, known, names));
    }
    const missing = required.length - present.length;
    const state =
      missing === 0
        ? 'all topics exist and are large enough'
        : `${missing} topics do not exist yet; Runlake creates them when it starts`;
    return [`${brokers.length} broker(s) answer; ${state}${replication}`, ...sinks].join('; ');
  } finally {
    await kafka.close();
  }
}

/** Above this lag, the check recommends more sinks or partitions. A sink stores this many events in a few seconds. */
const largeLagRecords = 100_000;

/**
 * Describes the problems of each topic: no sink, more sinks than partitions, or a large lag. Fails if this user has no
 * permission to describe groups, because a sink without this permission would block forever at startup.
 */
async function describeSinks(admin: Admin, topics: readonly Topic[], names: TopicNames): Promise<string[]> {
  const { groups } = await admin.describeGroups(topics.map((topic) => names.group(getSinkGroup(topic))));
  const problems: string[] = [];
  for (const topic of topics) {
    const group = names.group(getSinkGroup(topic));
    const sinks = groups.find(({ groupId }) => groupId === group)?.members.length ?? 0;
    const positions = [...(await findPositions(admin, group, names.of(topic))).values()];
    const lag = positions.reduce((sum, { committed, low, high }) => sum + high - Math.max(committed, low), 0);
    const name = names.of(topic);
    if (sinks === 0 && lag > 0) {
      problems.push(`no process stores ${name} and ${lag} events wait: start \`runlake ingest\``);
    } else if (sinks > positions.length) {
      const idle = sinks - positions.length;
      problems.push(`${idle} of ${sinks} sinks have no partition of ${name}: add partitions or stop them`);
    } else if (lag > largeLagRecords) {
      const more = sinks < positions.length ? 'start more `runlake ingest`' : 'add partitions and `runlake ingest`';
      problems.push(`${lag} events of ${name} wait for ${sinks} sinks with ${positions.length} partitions: ${more}`);
    }
  }
  return problems;
}

/**
 * Describes how safe accepted events are: the smallest number of replicas and the smallest `min.insync.replicas` of all
 * topics.
 */
async function describeReplication(admin: Admin, settings: ReadonlyMap<string, TopicSettings>): Promise<string> {
  const { topics } = await admin.fetchTopicMetadata({ topics: [...settings.keys()] });
  const replicas = Math.min(...topics.flatMap(({ partitions }) => partitions.map((each) => each.replicas.length)));
  const quorum = Math.min(...[...settings.values()].map(({ minInsyncReplicas }) => minInsyncReplicas));
  const summary = `replicas ${replicas}, min.insync.replicas ${quorum}`;
  return quorum >= 2 ? summary : `${summary}: accepted events may be lost when a broker is lost`;
}

/**
 * Checks that the registry has Runlake's subjects, and that the schemas of this release are compatible with the
 * registered ones. Changes nothing. @returns a summary for the operator. @throws REGISTRY_UNAVAILABLE,
 * ACCESS_DENIED_BY_STORE, SCHEMA_REFUSED.
 */
export async function inspectRegistry(
  config: RegistryAddress & Pick<Config, 'kafkaTopicPrefix'>,
  topics: readonly Topic[],
): Promise<string> {
  const registry = new SchemaRegistry(config);
  const subjects = await registry.subjects();
  let missing = 0;
  for (const topic of topics) {
    const subject = buildTopicNames(config.kafkaTopicPrefix).schemaSubject(topic);
    if (!subjects.includes(subject)) missing++;
    else if (!(await registry.isCompatible(subject, topic.schema))) {
      const reason = 'the schema of this release is not compatible with the registered one';
      throw runlakeError('SCHEMA_REFUSED', { subject, reason });
    }
  }
  return missing === 0
    ? 'answers; every schema is registered and compatible with this release'
    : `answers; ${missing} schemas are not registered yet; Runlake registers them when it starts`;
}
