import kafkajs, { type Admin } from 'kafkajs';
import { describe, expect, onTestFinished, test } from 'vitest';
import type { Subscription } from '../../../../infra/event-log/event-log.ts';
import { KafkaAdmin } from '../../../../infra/event-log/kafka/client.ts';
import { GroupConsumer } from '../../../../infra/event-log/kafka/consumer.ts';
import { ByteBudget } from '../../../../infra/event-log/kafka/record-buffer.ts';
import { nilUuid, type RunEvent } from '../../../../pipelines/ingest/run-event/run-event.ts';
import { runEvents } from '../../../../schemas/topics.ts';
import { freshStores } from '../../../engines/stores.ts';
import { json, runEvent } from '../../../pipelines/runs/run-events.ts';
import { logger } from '../../../silent-logger.ts';
import { deferred } from '../../deferred.ts';
import { until } from '../../until.ts';
import { type KafkaServers, kafkaServers, openKafkaUnderTest } from './kafka-under-test.ts';
import { type KafkaSink, logged, startKafkaSink } from './sink-on-kafka.ts';

const servers = kafkaServers();
const runsPerRound = 40;

describe.runIf(servers)('members join and leave the group while events are stored', () => {
  test('no run is lost or duplicated, and every run has its newest value', async () => {
    const stores = await freshStores();
    const kafka = await openKafkaUnderTest(servers as KafkaServers, { kafkaPartitions: 4, insertBatchMs: 20 });
    const api = await kafka.open({}, [runEvents]);
    const join = async (): Promise<KafkaSink> =>
      startKafkaSink(
        { log: await kafka.open({}, [runEvents]), clickhouse: stores.clickhouse, database: stores.database },
        {
          // Inserts are slow, so that partitions are reassigned during them.
          around: async (_insert, real) => {
            await real();
            await new Promise((resolve) => setTimeout(resolve, 300));
          },
        },
      );
    const runs: RunEvent[] = [];
    let stopped = false;
    const load = (async () => {
      while (!stopped) {
        const fresh = Array.from({ length: runsPerRound }, () => runEvent({ values: { outputs: json('posted') } }));
        for (const value of ['posted', 'first', 'second', 'third']) {
          const events = fresh.map(
            (run): RunEvent =>
              value === 'posted'
                ? run
                : { ...run, kind: 'patch', projectId: nilUuid, values: { outputs: json(value) } },
          );
          await api.publish(
            runEvents,
            events.map((event) => logged(api, event)),
          );
        }
        runs.push(...fresh);
      }
    })();
    const members: KafkaSink[] = [];
    const insertingMembers = (count: number) => async () => {
      const before = members.map(({ inserts }) => inserts.length);
      await until(
        `${count} members to insert`,
        () => members.filter(({ inserts }, index) => inserts.length > (before[index] as number) + 2).length >= count,
        60_000,
      );
    };
    try {
      members.push(await join());
      await insertingMembers(1)();
      members.push(await join());
      await insertingMembers(2)();
      members.push(await join());
      await insertingMembers(3)();
      await members.shift()?.stop();
      await insertingMembers(2)();
      await members.shift()?.stop();
      await insertingMembers(1)();
    } finally {
      stopped = true;
      await load;
    }
    const rows = <Row>(sql: string) => stores.clickhouse.query<Row>({ name: 'test', sql });
    const lag = async () => {
      const ends = await kafka.admin.fetchTopicOffsets(kafka.nameOf(runEvents));
      const [found] = await kafka.admin.fetchOffsets({
        groupId: `${kafka.config.kafkaTopicPrefix}sink-run-events`,
        topics: [kafka.nameOf(runEvents)],
      });
      return ends.reduce((sum, { partition, high }) => {
        const position = found?.partitions.find((each) => each.partition === partition)?.offset ?? '0';
        return sum + Number(high) - Math.max(0, Number(position));
      }, 0);
    };
    await until('all events to be stored', async () => (await lag()) === 0, 60_000);
    const newest = await rows<{ outputs: string; runs: number }>(
      'SELECT outputs, count() AS runs FROM runs FINAL GROUP BY outputs',
    );
    expect(newest.map(({ outputs, runs: count }) => [outputs, Number(count)])).toEqual([['"third"', runs.length]]);
    const [facts] = await rows<{ traces: number }>('SELECT uniqExact(tenant_id, trace_id) AS traces FROM traces');
    expect(Number(facts?.traces)).toBe(runs.length);
    await members[0]?.stop();
    await kafka.close();
    await stores.close();
  }, 240_000);
});

/** Opens a consumer whose byte budget is spent by one record. */
async function openConsumer(kafkaPartitions: number, handle: Subscription['handle'], Client = KafkaAdmin) {
  const kafka = await openKafkaUnderTest(servers as KafkaServers, { kafkaPartitions });
  await kafka.open({}, [runEvents]);
  const admin = new Client(kafka.config, logger);
  const budget = new ByteBudget(1);
  const group = `${kafka.config.kafkaTopicPrefix}budget`;
  const consumer = new GroupConsumer({
    subscription: { topic: runEvents, group, limits: { rows: 100, bytes: 1_000_000 }, handle },
    topicName: kafka.nameOf(runEvents),
    group,
    address: kafka.config,
    admin,
    budget,
    insertBatchMs: 20,
    sessionTimeoutMs: kafka.config.kafkaSessionTimeoutMs,
    logger,
  });
  return {
    budget,
    produce: (partition: number, bytes = 1_000) =>
      kafka.produce(runEvents, [{ partition, value: Buffer.alloc(bytes) }]),
    async close() {
      await consumer.close(10_000);
      await admin.close();
      await kafka.close();
    },
  };
}

describe.runIf(servers)('while the byte budget is spent', () => {
  test('only partitions without records in memory fetch, also none whose batch is being stored', async () => {
    const stored = deferred();
    const batches: { partition: number; offsets: number[] }[] = [];
    const { budget, produce, close } = await openConsumer(2, async ({ partition, records }) => {
      batches.push({ partition, offsets: records.map(({ offset }) => offset) });
      if (partition === 0) await stored.promise;
    });
    onTestFinished(async () => {
      stored.resolve();
      await close();
    });
    const filterBatches = (partition: number) => batches.filter((batch) => batch.partition === partition);
    await produce(0);
    await until('the batch of partition 0', () => filterBatches(0).length === 1, 60_000);
    const used = budget.usedBytes;
    await produce(0);
    // Two rounds, because a fetch that was sent before the pause may still return the record of partition 0.
    for (const round of [1, 2]) {
      await produce(1);
      await until('the batch of partition 1 to be stored', () => filterBatches(1).length === round, 60_000);
    }
    await until('the bytes of partition 1 to be freed', () => budget.usedBytes === used);
    stored.resolve();
    await until('the second batch of partition 0', () => filterBatches(0).length === 2, 60_000);
    expect(filterBatches(0).map(({ offsets }) => offsets)).toEqual([[0], [1]]);
  }, 180_000);
});

describe.runIf(servers)('until the starting positions are known', () => {
  test('only partitions without records in memory fetch while the byte budget is spent, and all records are stored', async () => {
    const answering = deferred();
    class SlowAdmin extends KafkaAdmin {
      override async call<Result>(work: (client: Admin) => Promise<Result>): Promise<Result> {
        await answering.promise;
        return super.call(work);
      }
    }
    const stored: string[] = [];
    const { budget, produce, close } = await openConsumer(
      4,
      async ({ partition, records }) => void stored.push(...records.map(({ offset }) => `${partition} ${offset}`)),
      SlowAdmin,
    );
    const largeBytes = 100_000;
    const produceAndFetch = async (partition: number) => {
      const before = budget.usedBytes;
      await produce(partition);
      await until(`the record of partition ${partition}`, () => budget.usedBytes > before, 60_000);
    };
    onTestFinished(async () => {
      answering.resolve();
      await close();
    });
    await produceAndFetch(0);
    await produceAndFetch(1);
    await produce(0, largeBytes);
    // Two rounds, because the first one may see the large record instead.
    await produceAndFetch(2);
    await produceAndFetch(3);
    expect(budget.usedBytes).toBeLessThan(largeBytes);
    answering.resolve();
    await until('all records to be stored', () => stored.length === 5, 60_000);
    expect(stored.sort()).toEqual(['0 0', '0 1', '1 0', '2 0', '3 0']);
    await until('all bytes to be freed', () => budget.usedBytes === 0);
  }, 180_000);
});

describe.runIf(servers)('a topic whose compression is changed while it is used', () => {
  test.each(['lz4', 'snappy', 'zstd'])(
    '%s: the log says what to do',
    async (compression) => {
      const kafka = await openKafkaUnderTest(servers as KafkaServers, { kafkaPartitions: 1 });
      const lines: string[] = [];
      const write = (fields: object, text: string) => void lines.push(`${JSON.stringify(fields)} ${text}`);
      const ignore = () => undefined;
      const listening = { debug: ignore, info: ignore, warn: ignore, error: write, child: () => listening };
      try {
        const api = await kafka.open({}, [runEvents]);
        const event = logged(api, runEvent({ values: { inputs: json('x'.repeat(10_000)) } }));
        await kafka.admin.alterConfigs({
          validateOnly: false,
          resources: [
            {
              type: kafkajs.ConfigResourceTypes.TOPIC,
              name: kafka.nameOf(runEvents),
              configEntries: [{ name: 'compression.type', value: compression }],
            },
          ],
        });
        await api.publish(runEvents, [event]);
        const consumer = new GroupConsumer({
          subscription: { topic: runEvents, group: 'test', limits: { rows: 10, bytes: 1e6 }, handle: async () => {} },
          topicName: kafka.nameOf(runEvents),
          group: `${kafka.config.kafkaTopicPrefix}test`,
          address: kafka.config,
          admin: new KafkaAdmin(kafka.config, logger),
          budget: new ByteBudget(1e6),
          insertBatchMs: 50,
          sessionTimeoutMs: 10_000,
          logger: listening as unknown as typeof logger,
        });
        try {
          await until('the error', () => lines.length > 0, 60_000);
          const expected = new RegExp(
            `"groupId":"${kafka.config.kafkaTopicPrefix}test".* with ${compression}.*to producer`,
            'i',
          );
          expect(lines[0]).toMatch(expected);
        } finally {
          await consumer.close(1_000);
        }
      } finally {
        await kafka.close();
      }
    },
    120_000,
  );
});
