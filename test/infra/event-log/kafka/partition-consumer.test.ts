import { fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { LogMessage } from '../../../../infra/event-log/event-log.ts';
import { openKafkaDeadLetterQueue } from '../../../../infra/event-log/kafka/dead-letter-queue.ts';
import type { KafkaLog } from '../../../../infra/event-log/kafka/kafka-log.ts';
import { nilUuid, type RunEvent } from '../../../../pipelines/ingest/run-event/run-event.ts';
import { runEvents } from '../../../../schemas/topics.ts';
import { childProcessOptions } from '../../../engines/child-of-suite.ts';
import { type FreshStores, freshStores } from '../../../engines/stores.ts';
import { json, runEvent } from '../../../pipelines/runs/run-events.ts';
import { logger } from '../../../silent-logger.ts';
import { until } from '../../until.ts';
import { type KafkaServers, type KafkaUnderTest, kafkaServers, openKafkaUnderTest } from './kafka-under-test.ts';
import type { StallingSink } from './sink-and-stall.fixture.ts';
import { type KafkaSink, logged, startKafkaSink } from './sink-on-kafka.ts';

const servers = kafkaServers();
const group = 'sink-run-events';

describe.runIf(servers)('the sink on Kafka', () => {
  let stores: FreshStores;
  let kafka: KafkaUnderTest;
  let log: KafkaLog;
  beforeEach(async () => {
    stores = await freshStores();
    kafka = await openKafkaUnderTest(servers as KafkaServers, { kafkaPartitions: 1, maxRunAgeDays: 3_000 });
    log = await kafka.open({}, [runEvents]);
  });
  afterEach(async () => {
    await kafka.close();
    await stores.close();
  });

  const publish = (...events: RunEvent[]) =>
    log.publish(
      runEvents,
      events.map((event) => logged(log, event)),
    );
  const makePatch = (of: RunEvent, outputs: unknown): RunEvent => ({
    ...of,
    kind: 'patch',
    projectId: nilUuid,
    values: { outputs: json(outputs) },
  });
  async function start(options: Parameters<typeof startKafkaSink>[1] = {}): Promise<KafkaSink> {
    const own = await kafka.open({}, [runEvents]);
    return startKafkaSink({ log: own, clickhouse: stores.clickhouse, database: stores.database }, options);
  }
  const rows = <Row>(sql: string) => stores.clickhouse.query<Row>({ name: 'test', sql });
  const storedRuns = async () => Number((await rows<{ n: number }>('SELECT uniqExact(id) AS n FROM runs'))[0]?.n);
  const readOutputs = async ({ runId }: RunEvent) =>
    (await rows<{ outputs: string }>(`SELECT outputs FROM runs FINAL WHERE id = '${runId}'`))[0]?.outputs;
  async function committed() {
    const found = await kafka.admin.fetchOffsets({
      groupId: kafka.config.kafkaTopicPrefix + group,
      topics: [kafka.nameOf(runEvents)],
    });
    const [partition] = found[0]?.partitions ?? [];
    return Number(partition?.offset);
  }

  function startStalling(stallsAt: StallingSink['stallsAt']) {
    const fixture = fileURLToPath(new URL('./sink-and-stall.fixture.ts', import.meta.url));
    const { clickhouseUrl, databaseUrl } = stores;
    const stalling: StallingSink = { config: kafka.config, clickhouseUrl, databaseUrl, stallsAt };
    return fork(fixture, [JSON.stringify(stalling)], { execArgv: [...childProcessOptions] });
  }

  test('a sink that was suspended before its insert until its partition was reassigned inserts late without overwriting', async () => {
    const run = runEvent({ values: { outputs: json('posted') } });
    await publish(run, makePatch(run, 'older'));
    const child = startStalling('before the insert, until it is resumed');
    try {
      await once(child, 'message');
      child.kill('SIGSTOP');
      const next = await start();
      await until('the batch to be redelivered', async () => (await committed()) === 2, 60_000);
      await publish(makePatch(run, 'newer'));
      await until('the newer patch to be stored', async () => (await committed()) === 3, 30_000);
      child.kill('SIGCONT');
      child.send('go on');
      expect((await once(child, 'message'))[0]).toEqual({ late: true });
      expect(await readOutputs(run)).toBe(JSON.stringify('newer'));
      await publish(makePatch(run, 'newest'));
      await until('the newest patch to be stored', async () => (await committed()) === 4, 60_000);
      expect(await readOutputs(run)).toBe(JSON.stringify('newest'));
      await next.stop();
    } finally {
      child.kill('SIGKILL');
    }
  }, 150_000);

  test.each<[StallingSink['stallsAt'], number]>([
    ['before the insert', 0],
    ['after the insert', 50],
  ])(
    'killed %s: the next sink stores the events again, and each is one run',
    async (stallsAt, rowsBefore) => {
      await publish(...Array.from({ length: 50 }, () => runEvent()));
      const child = startStalling(stallsAt);
      await once(child, 'message');
      // More events arrive during the batch; they may become part of the next batch.
      await publish(...Array.from({ length: 7 }, () => runEvent()));
      child.kill('SIGKILL');
      await once(child, 'exit');
      expect(await committed()).toBeLessThanOrEqual(0);
      expect(await storedRuns()).toBe(rowsBefore);
      await start();
      await until('all events to be stored', async () => (await committed()) === 57, 60_000);
      expect(await rows('SELECT count() AS n FROM runs FINAL')).toEqual([{ n: 57 }]);
    },
    120_000,
  );

  test.each<[string, (name: string, topic: string) => Promise<unknown>]>([
    [
      'moved back manually',
      (groupId, topic) => kafka.admin.setOffsets({ groupId, topic, partitions: [{ partition: 0, offset: '1' }] }),
    ],
    ['deleted', (groupId) => kafka.admin.deleteGroups([groupId])],
  ])(
    'with a committed offset that is %s, events are stored again, and the newest value remains',
    async (_what, reset) => {
      const run = runEvent({ values: { outputs: json('posted') } });
      const config = { insertBatchRows: 1 };
      const first = await start({ config });
      for (const event of [run, makePatch(run, 'older'), makePatch(run, 'newer')]) await publish(event);
      await until('the events to be stored', async () => (await committed()) === 3, 30_000);
      await first.stop();
      await reset(kafka.config.kafkaTopicPrefix + group, kafka.nameOf(runEvents));
      const second = await start({ config: { insertBatchRows: 2 } });
      await until('the events to be stored again', async () => (await committed()) === 3, 60_000);
      expect(second.inserts.length).toBeGreaterThan(0);
      expect(await readOutputs(run)).toBe(JSON.stringify('newer'));
      await publish(makePatch(run, 'newest'));
      await until('the next event to be stored', async () => (await committed()) === 4, 30_000);
      expect(await readOutputs(run)).toBe(JSON.stringify('newest'));
    },
    120_000,
  );

  test('foreign and damaged records go to the dead-letter queue unchanged; the records between them are stored', async () => {
    const good = [runEvent(), runEvent(), runEvent()];
    const [a, b, c] = good.map((event) => logged(log, event)) as [never, never, never];
    const unknownId = Buffer.from((a as { value: Buffer }).value);
    unknownId.writeUInt32BE(99_999_999, 1);
    const trailing = Buffer.concat([(a as { value: Buffer }).value, Buffer.from([0])]);
    const binaryKey = Buffer.from([0xff, 0x00, 0xfe]);
    await kafka.produce(runEvents, [
      a,
      {
        key: binaryKey,
        value: Buffer.from('not a record'),
        headers: { traceparent: '00-1', odd: Buffer.from([0xff]) },
      },
      b,
      { key: 'unknown id', value: unknownId },
      { key: 'tombstone', value: null },
      { key: 'trailing', value: trailing },
      c,
    ]);
    await start();
    await until('all events to be handled', async () => (await committed()) === 7, 60_000);
    expect(await storedRuns()).toBe(3);
    const deadLetters = openKafkaDeadLetterQueue({
      countReplays: async () => 0,
      config: kafka.config,
      topics: [runEvents],
      logger,
    });
    const heads = await deadLetters.list({ topics: [runEvents] }, 10);
    expect(heads.map(({ offset, step }) => [offset, step]).sort()).toEqual([
      [1, 'framing'],
      [3, 'schema'],
      [4, 'framing'],
      [5, 'walk'],
    ]);
    const stranger = await deadLetters.find(heads.find(({ offset }) => offset === 1)?.id ?? '');
    expect(stranger?.value.toString()).toBe('not a record');
    expect(stranger?.headers).toMatchObject({ traceparent: '00-1' });
    await deadLetters.close();
  }, 120_000);

  test('if a dead-letter record cannot be written, its offset is not committed until the write succeeds', async () => {
    const deadLetterTopic = `${kafka.nameOf(runEvents)}-dead-letters`;
    const good = [runEvent(), runEvent()].map((event) => logged(log, event));
    const stranger = { key: 'stranger', value: Buffer.from('not a record') };
    await kafka.produce(runEvents, [good[0] as LogMessage, stranger, good[1] as LogMessage]);
    const own = await kafka.open({ publishTimeoutMs: 1_000 }, [runEvents]);
    await kafka.admin.deleteTopics({ topics: [deadLetterTopic] });
    const write = own.deadLetter.bind(own);
    let failures = 0;
    own.deadLetter = async (...deadLetter) => {
      try {
        await write(...deadLetter);
      } catch (error) {
        failures += 1;
        throw error;
      }
    };
    await startKafkaSink({ log: own, clickhouse: stores.clickhouse, database: stores.database });
    await until('the dead-letter write to fail twice', () => failures >= 2, 60_000);
    // There is no committed offset, or it is the first one.
    expect(await committed()).toBeLessThanOrEqual(0);
    await kafka.admin.createTopics({ topics: [{ topic: deadLetterTopic, numPartitions: 1, replicationFactor: 1 }] });
    await until('all events to be handled', async () => (await committed()) === 3, 90_000);
    expect(await storedRuns()).toBe(2);
    const deadLetters = openKafkaDeadLetterQueue({
      countReplays: async () => 0,
      config: kafka.config,
      topics: [runEvents],
      logger,
    });
    try {
      const heads = await deadLetters.list({ topics: [runEvents] }, 10);
      // A write that timed out may still have succeeded.
      expect(new Set(heads.map(({ offset, step }) => `${offset} ${step}`))).toEqual(new Set(['1 framing']));
    } finally {
      await deadLetters.close();
    }
  }, 180_000);

  test('a failing insert blocks its partition until it succeeds', async () => {
    let failures = 3;
    const sink = await start({
      around: async (_insert, real) => {
        if (failures-- > 0) throw new Error('not now');
        await real();
      },
    });
    const run = runEvent();
    await publish(run, makePatch(run, 'one'));
    await publish(makePatch(run, 'two'));
    await until('all events to be stored', async () => (await committed()) === 3, 60_000);
    expect(sink.inserts.length).toBeGreaterThanOrEqual(4);
    expect(await readOutputs(run)).toBe(JSON.stringify('two'));
  }, 120_000);
});
