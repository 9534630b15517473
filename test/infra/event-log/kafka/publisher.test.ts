import { randomUUID } from 'node:crypto';
import { Partitioners } from 'kafkajs';
import { afterEach, expect, test } from 'vitest';
import type { IdempotentProducer } from '../../../../infra/event-log/kafka/producer.ts';
import { choosePartition, Publisher } from '../../../../infra/event-log/kafka/publisher.ts';

const topic = 'events';
let acknowledgements: (() => void)[] = [];
/** Events of each batch, in the order of publishing. */
let batches: number[] = [];
afterEach(() => {
  for (const acknowledge of acknowledgements) acknowledge();
  acknowledgements = [];
  batches = [];
});

/** Creates a publisher whose Kafka acknowledges a batch only when the test calls its entry of `acknowledgements`. */
function createPublisher(partitions: number, timeoutMs = 300) {
  const append: IdempotentProducer['append'] = ({ messages }) => {
    batches.push(messages.length);
    return new Promise<void>((resolve) => acknowledgements.push(resolve));
  };
  return new Publisher({
    producer: { append },
    partitions: new Map([[topic, partitions]]),
    maxPendingBytes: 1_000_000,
    batchBytes: 100_000,
    timeoutMs,
  });
}
const event = (key: string) => [{ key, value: Buffer.from('x') }];

test('refuses a request at once directly after a publish timeout', async () => {
  // The timeout and the age of the batch use different clocks: the publisher must win this race in each round.
  await Promise.all(
    Array.from({ length: 20 }, async () => {
      const publisher = createPublisher(1);
      const unavailable = { code: 'EVENT_LOG_UNAVAILABLE', status: 503 };
      await expect(publisher.publish(topic, event('first'))).rejects.toMatchObject(unavailable);
      const begun = acknowledgements.length;
      const pending = publisher.pendingBytes;
      const refused = publisher.publish(topic, event('second'));
      // No bytes were added to the pending ones, so the request does not wait.
      expect(publisher.pendingBytes).toBe(pending);
      await expect(refused).rejects.toMatchObject(unavailable);
      expect(acknowledgements.length).toBe(begun);
    }),
  );
});

test('an event waits for a batch in flight that is not overdue, and is sent after it', async () => {
  const publisher = createPublisher(1);
  const first = publisher.publish(topic, event('first'));
  await expect.poll(() => acknowledgements.length).toBe(1);
  const second = publisher.publish(topic, event('second'));
  acknowledgements.shift()?.();
  await first;
  await expect.poll(() => acknowledgements.length).toBe(1);
  acknowledgements.shift()?.();
  await second;
  expect(publisher.pendingBytes).toBe(0);
});

test('concurrent requests share a batch, and requests during it share the next one', async () => {
  const publisher = createPublisher(1, 60_000);
  const publishMany = (count: number) =>
    Promise.all(Array.from({ length: count }, () => publisher.publish(topic, event('k'))));
  const first = publishMany(30);
  await expect.poll(() => acknowledgements.length).toBe(1);
  const second = publishMany(20);
  acknowledgements.shift()?.();
  await first;
  await expect.poll(() => acknowledgements.length).toBe(1);
  acknowledgements.shift()?.();
  await second;
  expect(batches).toEqual([30, 20]);
});

test('accepts requests again when the late batch is acknowledged', async () => {
  const publisher = createPublisher(1);
  await expect(publisher.publish(topic, event('first'))).rejects.toMatchObject({ code: 'EVENT_LOG_UNAVAILABLE' });
  acknowledgements.shift()?.();
  await expect.poll(() => publisher.pendingBytes).toBe(0);
  const next = publisher.publish(topic, event('next'));
  await expect.poll(() => acknowledgements.length).toBe(1);
  acknowledgements.shift()?.();
  await next;
});

test('an event is in the partition that kafkajs and other clients choose for its key', () => {
  const partitioner = Partitioners.DefaultPartitioner();
  const partitions = 24;
  const partitionMetadata = Array.from({ length: partitions }, (_, partitionId) => ({
    partitionId,
    leader: 0,
  })) as never;
  const keys = [
    ...['', 'a', 'ab', 'abc', 'abcd', 'ä', '日本', '\u0000', '😀😀'],
    ...Array.from({ length: 2_000 }, (_, index) => `${randomUUID()}:${randomUUID()}`.slice(index % 40)),
  ];
  for (const key of keys) {
    const expected = partitioner({ topic, partitionMetadata, message: { key, value: null } });
    expect(choosePartition(key, partitions), key).toBe(expected);
    expect(choosePartition(Buffer.from(key), partitions), key).toBe(expected);
  }
  const bytes = Buffer.from([255, 254, 128, 0, 200, 129, 250]);
  expect(choosePartition(bytes, partitions)).toBe(
    partitioner({ topic, partitionMetadata, message: { key: bytes, value: null } }),
  );
});

test('a request larger than the limit for pending bytes is accepted while others are pending', async () => {
  const publisher = createPublisher(2);
  const large = [{ key: 'large', value: Buffer.alloc(2_000_000) }];
  const outcomes = Promise.allSettled([publisher.publish(topic, event('first')), publisher.publish(topic, large)]);
  expect(publisher.pendingBytes).toBeGreaterThan(2_000_000);
  await expect(publisher.publish(topic, large)).rejects.toMatchObject({ code: 'OVERLOADED' });
  await outcomes;
});
