import { beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import type { LogRecord } from '../../../../infra/event-log/event-log.ts';
import { KafkaAdmin } from '../../../../infra/event-log/kafka/client.ts';
import { openKafkaFollower } from '../../../../infra/event-log/kafka/topic-follower.ts';
import { runEvents } from '../../../../schemas/topics.ts';
import { forSuite } from '../../../for-suite.ts';
import { logger } from '../../../silent-logger.ts';
import { until } from '../../until.ts';
import { type KafkaServers, kafkaServers, openKafkaUnderTest } from './kafka-under-test.ts';

const servers = kafkaServers();

describe.runIf(servers)('TopicFollower', () => {
  const under = forSuite(() => openKafkaUnderTest(servers as KafkaServers));
  const admin = forSuite(() => new KafkaAdmin(under.config, logger));
  beforeAll(async () => {
    await under.open({}, [runEvents]);
  });

  const produce = (partition: number, texts: readonly string[]) =>
    under.produce(
      runEvents,
      texts.map((value) => ({ partition, key: value, value })),
    );

  test('follows new partitions from their beginning and existing ones without a gap', async () => {
    const records: LogRecord[] = [];
    const topic = under.nameOf(runEvents);
    const follower = await openKafkaFollower({
      onRecords: (received) => void records.push(...received),
      topicName: topic,
      groupPrefix: `${topic}-tail-`,
      address: under.config,
      admin,
      sessionTimeoutMs: under.config.kafkaSessionTimeoutMs,
      metadataMaxAgeMs: 500,
      logger,
    });
    onTestFinished(() => follower.close());
    await follower.caughtUp;
    await produce(0, ['0 first']);
    await until('the first record', () => records.length === 1);
    await under.admin.createPartitions({ topicPartitions: [{ topic, count: 4 }] });
    const isAccepted = (partition: number, texts: readonly string[]) =>
      produce(partition, texts).then(
        () => true,
        () => false,
      );
    // A broker that does not know the new partitions yet refuses the request.
    for (const partition of [2, 3]) {
      await until('the new partition to exist', () => isAccepted(partition, [`${partition} first`]));
    }
    for (const text of ['second', 'third'])
      for (const partition of [0, 1, 2, 3]) await produce(partition, [`${partition} ${text}`]);
    await until('all records', () => records.length >= 11, 60_000);
    const ends = await under.admin.fetchTopicOffsets(topic);
    await until('the follower to pass the log-end offsets', () =>
      follower.hasDelivered(Object.fromEntries(ends.map(({ partition, high }) => [partition, Number(high)]))),
    );
    const listSeen = (of: number) =>
      records.flatMap(({ partition, offset, value }) => (partition === of ? [`${offset}: ${value}`] : []));
    expect(listSeen(1)).toEqual(['0: 1 second', '1: 1 third']);
    for (const partition of [0, 2, 3]) {
      const texts = ['first', 'second', 'third'];
      expect(listSeen(partition)).toEqual(texts.map((text, offset) => `${offset}: ${partition} ${text}`));
    }
  });
});
