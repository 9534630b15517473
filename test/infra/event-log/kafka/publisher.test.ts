import { afterEach, expect, test } from 'vitest';
import type { Appender } from '../../../../infra/event-log/kafka/appender.ts';
import { Publisher } from '../../../../infra/event-log/kafka/publisher.ts';

const topic = 'events';
let goOn: (() => void)[] = [];
/** Events of each batch, in order. */
let batches: number[] = [];
afterEach(() => {
  for (const go of goOn) go();
  goOn = [];
  batches = [];
});

/** One that hands batches to a Kafka which answers nothing until it is told to. */
function publisherBefore(partitions: number, timeoutMs = 300) {
  const append: Appender['append'] = ({ messages }) => {
    batches.push(messages.length);
    return new Promise<void>((resolve) => goOn.push(resolve));
  };
  return new Publisher({
    appender: { append },
    partitions: new Map([[topic, partitions]]),
    maxPendingBytes: 1_000_000,
    batchBytes: 100_000,
    timeoutMs,
  });
}
const event = (key: string) => [{ key, value: Buffer.from('x') }];

test('whoever comes right after a refusal for time is refused at once, again and again', async () => {
  // The refusal and the age of the batch are told by different clocks: each round is a race that must not be lost.
  await Promise.all(
    Array.from({ length: 20 }, async () => {
      const publisher = publisherBefore(1);
      const unavailable = { code: 'EVENT_LOG_UNAVAILABLE', status: 503 };
      await expect(publisher.publish(topic, event('first'))).rejects.toMatchObject(unavailable);
      const begun = goOn.length;
      const held = publisher.pendingBytes;
      const refused = publisher.publish(topic, event('second'));
      // Nothing of it is held, so it does not wait.
      expect(publisher.pendingBytes).toBe(held);
      await expect(refused).rejects.toMatchObject(unavailable);
      expect(goOn.length).toBe(begun);
    }),
  );
});

test('what comes while a batch is young waits for it, and goes out after it', async () => {
  const publisher = publisherBefore(1);
  const first = publisher.publish(topic, event('first'));
  await expect.poll(() => goOn.length).toBe(1);
  const second = publisher.publish(topic, event('second'));
  goOn.shift()?.();
  await first;
  await expect.poll(() => goOn.length).toBe(1);
  goOn.shift()?.();
  await second;
  expect(publisher.pendingBytes).toBe(0);
});

test('requests that come at once go out together, and those that come meanwhile in the batch after it', async () => {
  const publisher = publisherBefore(1, 60_000);
  const many = (count: number) =>
    Promise.all(Array.from({ length: count }, () => publisher.publish(topic, event('k'))));
  const first = many(30);
  await expect.poll(() => goOn.length).toBe(1);
  const second = many(20);
  goOn.shift()?.();
  await first;
  await expect.poll(() => goOn.length).toBe(1);
  goOn.shift()?.();
  await second;
  expect(batches).toEqual([30, 20]);
});

test('once the batch is through after all, requests are taken again', async () => {
  const publisher = publisherBefore(1);
  await expect(publisher.publish(topic, event('first'))).rejects.toMatchObject({ code: 'EVENT_LOG_UNAVAILABLE' });
  goOn.shift()?.();
  await expect.poll(() => publisher.pendingBytes).toBe(0);
  const next = publisher.publish(topic, event('next'));
  await expect.poll(() => goOn.length).toBe(1);
  goOn.shift()?.();
  await next;
});
