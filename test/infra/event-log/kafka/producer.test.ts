import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { buildWirePrefix } from '../../../../infra/event-log/avro.ts';
import type { LogRecord } from '../../../../infra/event-log/event-log.ts';
import type { KafkaLog } from '../../../../infra/event-log/kafka/kafka-log.ts';
import { runEvents } from '../../../../schemas/topics.ts';
import { forSuite } from '../../../for-suite.ts';
import { until } from '../../until.ts';
import { type KafkaServers, type KafkaUnderTest, kafkaServers, openKafkaUnderTest } from './kafka-under-test.ts';
import { startDedicatedBroker } from './own-broker.ts';

const servers = kafkaServers();
const publishTimeoutMs = 2_000;

describe.runIf(servers)('Kafka is unavailable while events are published', () => {
  const broker = forSuite(() => startDedicatedBroker());
  let under: KafkaUnderTest;
  let log: KafkaLog;
  const seen = new Map<string, LogRecord>();
  /** Offsets that a follower received during all tests, by partition. */
  const followed = new Map<number, number[]>();

  beforeAll(async () => {
    under = await openKafkaUnderTest(
      { ...(servers as KafkaServers), brokers: broker.brokers },
      { publishTimeoutMs, maxPendingBytes: 1_000_000, kafkaPartitions: 2, maxRunBytes: 512 * 1024 },
    );
    log = await under.open({}, [runEvents]);
    await log.follow(runEvents, {
      onRecords(records) {
        for (const { partition, offset } of records)
          followed.set(partition, [...(followed.get(partition) ?? []), offset]);
      },
    });
    await log.subscribe({
      topic: runEvents,
      group: 'through',
      limits: { rows: 10_000, bytes: 10_000_000 },
      async handle({ partition, records }) {
        for (const record of records) seen.set(`${partition}/${record.offset}`, record);
      },
    });
  });
  afterAll(async () => {
    await under?.close().catch(() => undefined);
  });

  const message = (key: string, text: string) => ({
    key,
    value: Buffer.concat([buildWirePrefix(log.schemaId(runEvents)), Buffer.from(text)]),
  });

  /** Publishes 0, 1, 2, … with one key and retries each number until it is accepted, as a client does. */
  function publishing(key: string) {
    let next = 0;
    let stopped = false;
    let refusals = 0;
    const slowestMs = { value: 0 };
    const done = (async () => {
      while (!stopped) {
        const startedAtMs = performance.now();
        try {
          await log.publish(runEvents, [message(key, `${key} ${next}`)]);
          next++;
        } catch (error) {
          expect(error).toMatchObject({ code: 'EVENT_LOG_UNAVAILABLE', status: 503 });
          expect((error as { retryAfterSeconds?: number }).retryAfterSeconds).toBeGreaterThan(0);
          refusals++;
          await new Promise((resolve) => setTimeout(resolve, 50));
        }
        slowestMs.value = Math.max(slowestMs.value, performance.now() - startedAtMs);
      }
    })();
    return {
      accepted: () => next,
      refusals: () => refusals,
      slowestMs: () => slowestMs.value,
      async stop() {
        stopped = true;
        await done;
      },
    };
  }

  /** Returns the numbers of every key in log order, as received by the consumer that is subscribed during all tests. */
  async function stored(keys: readonly string[], counts: readonly number[]) {
    const listNumbers = (key: string) =>
      [...seen.values()]
        .filter((record) => record.key === key)
        .sort((a, b) => a.offset - b.offset)
        .map(({ value }) => Number(value.subarray(5).toString().split(' ').at(-1)));
    await until(
      'all accepted events to be consumed',
      () => keys.every((key, index) => new Set(listNumbers(key)).size >= (counts[index] as number)),
      90_000,
    );
    return keys.map(listNumbers);
  }

  async function expectOutageSurvived(name: string, away: () => Promise<void>, back: () => Promise<void>) {
    const keys = Array.from({ length: 6 }, (_, index) => `${name}${index}`);
    const publishers = keys.map(publishing);
    await until('events to be accepted', () => publishers.every(({ accepted }) => accepted() > 20), 30_000);
    await away();
    await until('refusals', () => publishers.every(({ refusals }) => refusals() > 2), 30_000);
    const before = publishers.map(({ accepted }) => accepted());
    await back();
    await until(
      'events to be accepted again',
      () => publishers.every(({ accepted }, index) => accepted() > (before[index] as number) + 20),
      60_000,
    );
    await Promise.all(publishers.map((each) => each.stop()));
    for (const { slowestMs } of publishers) expect(slowestMs()).toBeLessThan(publishTimeoutMs * 4);
    const counts = publishers.map(({ accepted }) => accepted());
    for (const [index, numbers] of (await stored(keys, counts)).entries()) {
      // No accepted event is missing, and no copy of an older event follows a newer accepted one.
      const consumed = new Set(numbers);
      expect(
        Array.from({ length: counts[index] as number }, (_, number) => number).filter((n) => !consumed.has(n)),
      ).toEqual([]);
      expect(numbers).toEqual([...numbers].sort((a, b) => a - b));
    }
    expect(log.pendingBytes).toBe(0);
    await expectFollowedAll();
  }

  /** Checks that the follower received each record of the topic once, in order. */
  async function expectFollowedAll(): Promise<void> {
    for (const { partition, high } of await under.admin.fetchTopicOffsets(under.nameOf(runEvents))) {
      const all = Array.from({ length: Number(high) }, (_, offset) => offset);
      await until('the follower to catch up', () => (followed.get(partition)?.length ?? 0) >= all.length, 90_000);
      expect(followed.get(partition) ?? []).toEqual(all);
    }
  }

  test('stall: events are refused in time; afterwards no accepted event is missing, no older copy follows a newer event, and a follower receives each record once', async () => {
    await expectOutageSurvived(
      'stall',
      () => broker.freeze(true),
      () => broker.freeze(false),
    );
  }, 180_000);

  test('kill and restart: the same as for a stall', async () => {
    await expectOutageSurvived(
      'kill',
      () => broker.kill(),
      () => broker.start(),
    );
  }, 180_000);

  test('stall: pending events are bounded, later requests are refused at once, and every request ends', async () => {
    await broker.freeze(true);
    onTestFinished(() => broker.freeze(false));
    const large = 'x'.repeat(300_000);
    const waiting = Array.from({ length: 3 }, (_, index) => log.publish(runEvents, [message(`k${index}`, large)]));
    const outcomes = Promise.allSettled(waiting);
    await expect(log.publish(runEvents, [message('k', large)])).rejects.toMatchObject({
      code: 'OVERLOADED',
      status: 503,
    });
    for (const outcome of await outcomes) {
      expect(outcome).toMatchObject({ status: 'rejected', reason: { code: 'EVENT_LOG_UNAVAILABLE' } });
    }
    const waitsMs: number[] = [];
    for (let index = 0; index < 20; index++) {
      const startedAtMs = performance.now();
      const refused = log.publish(runEvents, [message(`k${index}`, 'small')]);
      await expect(refused).rejects.toMatchObject({ code: 'EVENT_LOG_UNAVAILABLE', status: 503 });
      waitsMs.push(performance.now() - startedAtMs);
    }
    // At most one publish waits: the first one for the other partition queue, which had no request in flight. All later
    // requests are refused at once.
    expect(waitsMs.filter((waitMs) => waitMs > publishTimeoutMs * 0.9).length, `${waitsMs}`).toBeLessThanOrEqual(1);
    await expect(log.check()).rejects.toMatchObject({ code: 'KAFKA_UNAVAILABLE' });
    await broker.freeze(false);
    await until(
      'Kafka to accept events again',
      () =>
        log.publish(runEvents, [message('k', 'after')]).then(
          () => true,
          () => false,
        ),
      30_000,
    );
    await until('no pending bytes', () => log.pendingBytes === 0, 30_000);
    await until(
      'the health check to pass',
      () =>
        log.check().then(
          () => true,
          () => false,
        ),
      30_000,
    );
  }, 120_000);
});
