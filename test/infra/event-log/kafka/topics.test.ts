/**
 * The effects of a start on the topics, as requests to Kafka. The admin client is a test double, because a single
 * broker has no quorum.
 */
import { createServer } from 'node:http';
import kafkajs, { type Admin, type ITopicConfig } from 'kafkajs';
import { afterEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { isUnavailable } from '../../../../api/command-line/start-role.ts';
import { loadConfig } from '../../../../infra/config/load.ts';
import { toKafkaError } from '../../../../infra/event-log/kafka/client.ts';
import { openKafkaLog } from '../../../../infra/event-log/kafka/kafka-log.ts';
import { ensureTopics } from '../../../../infra/event-log/kafka/topics.ts';
import { runEvents } from '../../../../schemas/topics.ts';
import { logger } from '../../../silent-logger.ts';
import { listenOnLoopback } from '../../listen-on-loopback.ts';

const { config } = loadConfig({});

const brokerError = (type: string) =>
  Object.assign(new Error(type), { name: 'KafkaJSProtocolError', type, retriable: true });
const creationErrors = (...types: readonly string[]) =>
  Object.assign(new Error('Topic creation errors'), { name: 'KafkaJSAggregateError', errors: types.map(brokerError) });

interface Cluster {
  /** Value of `compression.type` of the topics. */
  readonly compressionType?: string;
  /** Value of `default.replication.factor`; an error if the user may not read it. */
  readonly defaultReplication?: string | Error;
  /** Errors of the first responses to a request. */
  readonly failures?: Partial<Record<'createTopics' | 'fetchTopicMetadata' | 'fetchTopicOffsets', Error[]>>;
}

function createFakeAdmin({ defaultReplication = '1', failures = {}, compressionType }: Cluster) {
  const created = new Map<string, ITopicConfig>();
  const failNext = (request: keyof typeof failures) => {
    const error = failures[request]?.shift();
    if (error !== undefined) throw error;
  };
  const admin = {
    connect: async () => undefined,
    disconnect: async () => undefined,
    listTopics: async () => [...created.keys()],
    describeCluster: async () => ({ brokers: [], controller: 7, clusterId: 'c' }),
    createTopics: async ({ topics }: { topics: ITopicConfig[] }) => {
      for (const topic of topics) created.set(topic.topic, topic);
      failNext('createTopics');
      return true;
    },
    fetchTopicMetadata: async ({ topics }: { topics: string[] }) => {
      failNext('fetchTopicMetadata');
      return { topics: topics.map((name) => ({ name, partitions: [{ replicas: [7] }] })) };
    },
    fetchTopicOffsets: async () => failNext('fetchTopicOffsets'),
    describeConfigs: async ({ resources }: { resources: { type: number; name: string }[] }) => {
      if (resources[0]?.type !== kafkajs.ConfigResourceTypes.BROKER) {
        const configEntries = [{ configName: 'compression.type', configValue: compressionType }];
        return { resources: resources.map(({ name }) => ({ resourceName: name, configEntries })) };
      }
      expect(resources[0].name).toBe('7');
      if (defaultReplication instanceof Error) throw defaultReplication;
      const configEntries = [{ configName: 'default.replication.factor', configValue: defaultReplication }];
      return { resources: [{ resourceName: '7', configEntries }] };
    },
  };
  return { admin: admin as unknown as Admin, created };
}

const topic = { name: 'run-events', deadLetters: false };

describe('min.insync.replicas of a new topic', () => {
  it.each([
    ['the default replication of 3', '3', undefined, '2'],
    ['the default replication of 5', '5', undefined, '2'],
    ['the default replication of 2', '2', undefined, undefined],
    ['the default replication of 1', '1', undefined, undefined],
    ['an unreadable default', brokerError('CLUSTER_AUTHORIZATION_FAILED'), undefined, undefined],
    ['a configured replication of 3', '1', 3, '2'],
    ['a configured replication of 1', '3', 1, undefined],
  ])('with %s', async (_what, defaultReplication, kafkaReplication, quorum) => {
    const { admin, created } = createFakeAdmin({ defaultReplication });
    await ensureTopics(admin, [topic], { ...config, kafkaReplication }, logger);
    const { replicationFactor, configEntries } = created.get(topic.name) as ITopicConfig;
    expect(replicationFactor).toBe(kafkaReplication ?? -1);
    expect(configEntries?.find(({ name }) => name === 'min.insync.replicas')?.value).toBe(quorum);
  });
});

describe('compression', () => {
  it('a new topic keeps batches as they are sent, also if the brokers compress others', async () => {
    const { admin, created } = createFakeAdmin({});
    await ensureTopics(admin, [topic], config, logger);
    expect(created.get(topic.name)?.configEntries).toContainEqual({ name: 'compression.type', value: 'producer' });
  });

  it.each(['producer', 'uncompressed', 'gzip'])('a topic with %s is used', async (compressionType) => {
    const { admin } = createFakeAdmin({ compressionType });
    await expect(ensureTopics(admin, [topic], config, logger)).resolves.toEqual(new Map([['run-events', 1]]));
  });

  it.each(['lz4', 'snappy', 'zstd'])('a topic with %s, which the client cannot read, is refused', async (found) => {
    const { admin } = createFakeAdmin({ compressionType: found });
    const unusable = { code: 'TOPIC_UNUSABLE', message: expect.stringContaining(`compression.type is ${found}`) };
    await expect(ensureTopics(admin, [topic], config, logger)).rejects.toMatchObject(unusable);
  });
});

describe('while Kafka elects leaders', () => {
  afterEach(() => vi.restoreAllMocks());
  const createElectionError = () => brokerError('LEADER_NOT_AVAILABLE');

  it('a role waits for the server instead of ending', async () => {
    const { admin } = createFakeAdmin({ failures: { fetchTopicOffsets: [createElectionError()] } });
    const error = await ensureTopics(admin, [topic], config, logger).catch((raw) => toKafkaError(raw, 'brokers'));
    expect(error).toMatchObject({ code: 'KAFKA_UNAVAILABLE', class: 'transient' });
    expect(isUnavailable(error)).toBe(true);
  });

  it('topics that another process creates at the same time are no error', async () => {
    const { admin } = createFakeAdmin({
      failures: { createTopics: [creationErrors('TOPIC_ALREADY_EXISTS', 'LEADER_NOT_AVAILABLE')] },
    });
    await expect(ensureTopics(admin, [topic], config, logger)).resolves.toEqual(new Map([['run-events', 1]]));
  });

  it('another error beside a topic that exists is an error', async () => {
    const { admin } = createFakeAdmin({
      failures: { createTopics: [creationErrors('TOPIC_ALREADY_EXISTS', 'POLICY_VIOLATION')] },
    });
    await expect(ensureTopics(admin, [topic], config, logger)).rejects.toThrow('Topic creation errors');
  });

  it('the log opens when the leaders are elected', async () => {
    const failures = {
      createTopics: [creationErrors('LEADER_NOT_AVAILABLE')],
      fetchTopicMetadata: [createElectionError()],
      fetchTopicOffsets: [createElectionError()],
    };
    const { admin, created } = createFakeAdmin({ failures });
    vi.spyOn(kafkajs.Kafka.prototype, 'admin').mockReturnValue(admin);
    const registry = createServer(({ method, url }, response) => {
      if (url?.startsWith('/config')) response.end('{"compatibilityLevel":"FULL"}');
      else response.end(method === 'GET' ? '[]' : '{"id":1}');
    });
    const port = await listenOnLoopback(registry);
    onTestFinished(() => void registry.close());
    const log = await openKafkaLog({
      config: {
        ...config,
        kafkaBrokers: '127.0.0.1:9',
        schemaRegistryUrl: `http://127.0.0.1:${port}`,
      },
      topics: [runEvents],
      logger,
    });
    await log.close();
    expect(Object.values(failures)).toEqual([[], [], []]);
    expect([...created.keys()]).toEqual(['run-events', 'run-events-dead-letters']);
  });
});
