/** Offsets that are missing in what the Kafka client fetches. */
import type { KafkaMessage } from 'kafkajs';
import { expect, test } from 'vitest';
import { PartitionConsumer } from '../../../../infra/event-log/kafka/partition-consumer.ts';
import { ByteBudget } from '../../../../infra/event-log/kafka/record-buffer.ts';
import { registry } from '../../../../infra/telemetry/metrics.ts';
import { runEvents } from '../../../../schemas/topics.ts';
import { logger } from '../../../silent-logger.ts';
import { until } from '../../until.ts';

const message = (offset: number): KafkaMessage => ({
  ...{ offset: String(offset), timestamp: '1', attributes: 0, headers: {} },
  ...{ key: Buffer.from('key'), value: Buffer.from('value') },
});

async function readLostEvents(topicName: string): Promise<number> {
  const metric = await registry.getSingleMetric('runlake_event_log_lost_events_total')?.get();
  return metric?.values.find(({ labels }) => labels.topic === topicName)?.value ?? 0;
}

function startConsumer(topicName: string) {
  const handled: number[] = [];
  const seeks: number[] = [];
  const consumer = new PartitionConsumer({
    subscription: {
      topic: runEvents,
      group: 'test',
      limits: { rows: 100, bytes: 1_000_000 },
      handle: async ({ records }) => void handled.push(...records.map(({ offset }) => offset)),
    },
    topicName,
    partition: 0,
    predecessor: Promise.resolve(),
    budget: new ByteBudget(1_000_000),
    logger,
    brokers: undefined,
    seek: (offset) => void seeks.push(offset),
    onBatchTaken: () => {},
  });
  void consumer.run();
  const accept = (...offsets: number[]) => consumer.accept(offsets.map(message), async () => {});
  return { consumer, accept, handled, seeks };
}

test('events that Kafka deletes before they are fetched are counted as lost', async () => {
  const { consumer, accept, handled, seeks } = startConsumer('deleted-while-consumed');
  consumer.begin({ offset: 0, lostEvents: 0 });
  accept(0, 1);
  accept(1_000, 1_001);
  expect(seeks).toEqual([2]);
  expect(await readLostEvents('deleted-while-consumed')).toBe(0);
  accept(1_000, 1_001);
  await until('the events after the gap to be stored', async () => handled.length === 4, 10_000);
  expect(handled).toEqual([0, 1, 1_000, 1_001]);
  expect(await readLostEvents('deleted-while-consumed')).toBe(998);
  consumer.end();
});

test('events that the client skipped once, and fetches again, are not counted as lost', async () => {
  const { consumer, accept, handled } = startConsumer('skipped-once');
  consumer.begin({ offset: 0, lostEvents: 0 });
  accept(2, 3);
  accept(0, 1, 2, 3);
  await until('the events to be stored', async () => handled.length === 4, 10_000);
  expect(await readLostEvents('skipped-once')).toBe(0);
  consumer.end();
});
