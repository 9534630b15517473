import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { buildWirePrefix } from '../../../../infra/event-log/avro.ts';
import { getSinkGroup, type LogRecord } from '../../../../infra/event-log/event-log.ts';
import { inspectKafka } from '../../../../infra/event-log/kafka/health.ts';
import { openKafkaLog } from '../../../../infra/event-log/kafka/kafka-log.ts';
import { feedbackEvents, runEvents } from '../../../../schemas/topics.ts';
import { runEvent } from '../../../pipelines/runs/run-events.ts';
import { logger } from '../../../silent-logger.ts';
import { openTcpProxy } from '../../tcp-proxy.ts';
import { until } from '../../until.ts';
import { type KafkaServers, type KafkaUnderTest, kafkaServers, openKafkaUnderTest } from './kafka-under-test.ts';
import { logged } from './sink-on-kafka.ts';

const servers = kafkaServers();

describe.runIf(servers)('Kafka and the registry when the log opens', () => {
  let kafka: KafkaUnderTest;
  beforeEach(async () => {
    kafka = await openKafkaUnderTest(servers as KafkaServers);
  });
  afterEach(() => kafka.close());

  const configOf = async (topic: string) => {
    const { resources } = await kafka.admin.describeConfigs({
      includeSynonyms: false,
      resources: [{ type: 2, name: topic }],
    });
    return new Map(resources[0]?.configEntries.map(({ configName, configValue }) => [configName, configValue]));
  };

  test('creates topics as configured, large enough for the largest run, and never changes them', async () => {
    await kafka.open({ kafkaPartitions: 3 }, [runEvents]);
    const topic = kafka.nameOf(runEvents);
    const shape = async () => (await kafka.admin.fetchTopicMetadata({ topics: [topic] })).topics[0]?.partitions.length;
    expect(await shape()).toBe(3);
    expect((await configOf(topic)).get('message.timestamp.type')).toBe('LogAppendTime');
    expect(Number((await configOf(topic)).get('max.message.bytes'))).toBeGreaterThan(kafka.config.maxRunBytes);
    expect(await kafka.admin.listTopics()).toContain(`${topic}-dead-letters`);
    // With one broker the default replication is 1, so min.insync.replicas of 2 could never be reached.
    expect((await configOf(topic)).get('min.insync.replicas')).toBe('1');
    const report = await inspectKafka({ config: kafka.config, topics: [runEvents], logger });
    expect(report).toContain('replicas 1, min.insync.replicas 1: accepted events may be lost when a broker is lost');
    await kafka.open({ kafkaPartitions: 5 }, [runEvents]);
    expect(await shape()).toBe(3);
  });

  test('the inspection reports sinks, partitions and lag that do not fit', async () => {
    const inspect = async () => inspectKafka({ config: kafka.config, topics: [runEvents], logger });
    const log = await kafka.open({ kafkaPartitions: 1 }, [runEvents]);
    const name = kafka.nameOf(runEvents);
    expect(await inspect()).not.toMatch(/events wait|no partition/);
    await log.publish(runEvents, [logged(log, runEvent())]);
    expect(await inspect()).toContain(`no process stores ${name} and 1 events wait: start \`runlake ingest\``);
    const limits = { rows: 10, bytes: 10_000 };
    for (const each of [log, await kafka.open({ kafkaPartitions: 1 }, [runEvents])]) {
      await each.subscribe({ topic: runEvents, group: getSinkGroup(runEvents), limits, handle: async () => {} });
    }
    const idle = `1 of 2 sinks have no partition of ${name}: add partitions or stop them`;
    await until('both sinks to join', async () => (await inspect()).includes(idle), 30_000);
  }, 60_000);

  test('refuses a topic that is too small for the largest run, and names it', async () => {
    const topic = kafka.nameOf(runEvents);
    await kafka.admin.createTopics({
      waitForLeaders: true,
      topics: [{ topic, numPartitions: 1, configEntries: [{ name: 'max.message.bytes', value: '1000000' }] }],
    });
    await expect(kafka.open({}, [runEvents])).rejects.toMatchObject({
      code: 'TOPIC_UNUSABLE',
      message: expect.stringContaining(`${topic} cannot be used: its max.message.bytes is 1000000`),
    });
  });

  test('registers schemas under the topic with full compatibility, and the registry refuses an incompatible one', async () => {
    const log = await kafka.open({}, [runEvents]);
    const subject = `${kafka.nameOf(runEvents)}-value`;
    const { registryUrl } = servers as KafkaServers;
    const level = await fetch(`${registryUrl}/config/${subject}`);
    expect(await level.json()).toMatchObject({ compatibilityLevel: 'FULL' });
    const schema = JSON.parse(runEvents.schema);
    const grown = { ...schema, fields: [...schema.fields, { name: 'mood', type: ['null', 'string'], default: null }] };
    const newer = await kafka.open({}, [{ ...runEvents, schema: JSON.stringify(grown) }]);
    expect(JSON.parse((await newer.getSchema(log.schemaId(runEvents))) ?? '').fields).toHaveLength(
      schema.fields.length,
    );
    const broken = { ...schema, fields: [...schema.fields, { name: 'mood', type: 'string' }] };
    await expect(kafka.open({}, [{ ...runEvents, schema: JSON.stringify(broken) }])).rejects.toMatchObject({
      code: 'SCHEMA_REFUSED',
    });
  });

  test('distinguishes an unavailable registry from an unknown schema id, and caches schemas', async () => {
    const { registryUrl } = servers as KafkaServers;
    const { hostname, port, pathname } = new URL(registryUrl);
    const proxy = await openTcpProxy(hostname, Number(port));
    const other = await kafka.open({}, [feedbackEvents]);
    const log = await kafka.open({ schemaRegistryUrl: `http://127.0.0.1:${proxy.port}${pathname}` }, [runEvents]);
    expect(await log.getSchema(99_999_999)).toBeUndefined();
    await proxy.close();
    expect(await log.getSchema(log.schemaId(runEvents))).toBe(runEvents.schema);
    await expect(log.getSchema(other.schemaId(feedbackEvents))).rejects.toMatchObject({ code: 'REGISTRY_UNAVAILABLE' });
    await expect(log.getSchema(99_999_999)).rejects.toMatchObject({ code: 'REGISTRY_UNAVAILABLE', class: 'transient' });
    await expect(log.check()).rejects.toMatchObject({ code: 'REGISTRY_UNAVAILABLE' });
    // Publishing does not contact the registry again.
    const value = Buffer.concat([buildWirePrefix(log.schemaId(runEvents)), Buffer.from('x')]);
    await log.publish(runEvents, [{ key: 'k', value }]);
  });

  test.each([
    ['Kafka', { kafkaBrokers: '127.0.0.1:1' }, 'KAFKA_UNAVAILABLE', '127.0.0.1:1'],
    [
      'the registry',
      { schemaRegistryUrl: 'http://127.0.0.1:1/apis' },
      'REGISTRY_UNAVAILABLE',
      'http://127.0.0.1:1/apis',
    ],
  ])('%s that cannot be reached at the start is named, in time', async (_what, address, code, named) => {
    const startedAtMs = performance.now();
    const opening = openKafkaLog({ config: { ...kafka.config, ...address }, topics: [runEvents], logger });
    await expect(opening).rejects.toMatchObject({ code, message: expect.stringContaining(named) });
    expect(performance.now() - startedAtMs).toBeLessThan(30_000);
  });

  test('accepts runs of ten megabytes with many small ones in few batches', async () => {
    const log = await kafka.open({ kafkaPartitions: 1 }, [runEvents]);
    const records: LogRecord[] = [];
    await log.subscribe({
      topic: runEvents,
      group: 'large',
      limits: { rows: 10_000, bytes: 64 * 1024 * 1024 },
      handle: async (batch) => void records.push(...batch.records),
    });
    const prefix = buildWirePrefix(log.schemaId(runEvents));
    const large = Buffer.concat([prefix, Buffer.alloc(10 * 1024 * 1024, 'x')]);
    const small = Buffer.concat([prefix, Buffer.alloc(1_000, 'y')]);
    const messages = Array.from({ length: 300 }, (_, index) => ({
      key: `key ${index % 10}`,
      value: index % 100 === 50 ? large : small,
    }));
    await log.publish(runEvents, messages);
    await until('all messages to be consumed', () => records.length >= messages.length, 60_000);
    expect(records.filter(({ value }) => value.length === large.length)).toHaveLength(3);
    expect(log.pendingBytes).toBe(0);
  });
});

describe.runIf(servers)('whether events are stored', () => {
  let kafka: KafkaUnderTest;
  beforeEach(async () => {
    kafka = await openKafkaUnderTest(servers as KafkaServers);
  });
  afterEach(() => kafka.close());

  const message = { partition: 1, value: Buffer.from('event') };
  const open = async (kafkaPartitions: number) => {
    const log = await kafka.open({ kafkaPartitions }, [runEvents]);
    const answers = () => log.isStored(runEvents, {}).catch(() => false);
    await until('the coordinator of the group', answers);
    return log;
  };

  test('those in a partition that a recreated topic no longer has count as stored', async () => {
    const log = await open(2);
    await kafka.produce(runEvents, [message]);
    const position = await log.position(runEvents);
    expect(await log.isStored(runEvents, position)).toBe(false);
    const topic = kafka.nameOf(runEvents);
    await kafka.admin.deleteTopics({ topics: [topic] });
    const recreate = () => kafka.admin.createTopics({ topics: [{ topic, numPartitions: 1 }], waitForLeaders: false });
    await until('the topic to be recreated', recreate, 30_000);
    await until('the position', () => log.isStored(runEvents, position).catch(() => false), 30_000);
  }, 120_000);

  test('those in a partition that was added since the client asked for the partitions do not', async () => {
    const log = await open(1);
    expect(await log.isStored(runEvents, await log.position(runEvents))).toBe(true);
    await kafka.admin.createPartitions({ topicPartitions: [{ topic: kafka.nameOf(runEvents), count: 2 }] });
    await kafka.produce(runEvents, [message]);
    expect(await log.isStored(runEvents, { 0: 0, 1: 1 })).toBe(false);
  }, 120_000);
});
