/** The sink on Kafka: repeats what other suites test with the in-process log and with batches that the test defines. */
import { createRequire } from 'node:module';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import type { ClickHouse } from '../../../../infra/clickhouse/clickhouse.ts';
import type { DeadLetterRecord } from '../../../../infra/event-log/event-log.ts';
import { openKafkaDeadLetterQueue } from '../../../../infra/event-log/kafka/dead-letter-queue.ts';
import type { KafkaLog } from '../../../../infra/event-log/kafka/kafka-log.ts';
import { nilUuid, type RunEvent } from '../../../../pipelines/ingest/run-event/run-event.ts';
import { eventVersionsInsert } from '../../../../pipelines/ingest/sink/event-versions.ts';
import { Sink } from '../../../../pipelines/ingest/sink/sink.ts';
import { readRunStream } from '../../../../pipelines/streams/read-streams.ts';
import { runEvents, streamEvents, type Topic, topics } from '../../../../schemas/topics.ts';
import { freshStores } from '../../../engines/stores.ts';
import { forSuite } from '../../../for-suite.ts';
import {
  type KafkaServers,
  type KafkaUnderTest,
  kafkaServers,
  openKafkaUnderTest,
} from '../../../infra/event-log/kafka/kafka-under-test.ts';
import { until } from '../../../infra/until.ts';
import { logger } from '../../../silent-logger.ts';
import { deriveUuid, json, noonMicros, runEvent } from '../../runs/run-events.ts';
import { deploymentId, streamEvent, streamMessage } from '../../streams/stream-events.ts';
import { garbled, poisonCases, unknownSchemaId } from './poison-cases.ts';
import { addWeather, framed, toLogMessage } from './sink-under-test.ts';

vi.setConfig({ testTimeout: 180_000, hookTimeout: 120_000 });

interface KafkaEncoder {
  writeVarIntBytes(value: Buffer | string | null): KafkaEncoder;
}
const Encoder: { readonly prototype: KafkaEncoder } = createRequire(import.meta.url)('kafkajs/src/protocol/encoder');

const servers = kafkaServers();
const timeoutMs = 90_000;

describe.runIf(servers)('the sink over Kafka', () => {
  const stores = forSuite(() => freshStores());
  let kafka: KafkaUnderTest;
  let log: KafkaLog;
  let sink: Sink;
  /** Table whose next insert is stored but reported as failed. */
  let failsAfterInsertInto: string | undefined;
  beforeEach(async () => {
    kafka = await openKafkaUnderTest(servers as KafkaServers, { maxRunAgeDays: 3_000, kafkaPartitions: 1 });
    await start();
  });
  afterEach(async () => {
    sink.stop();
    await kafka.close();
  });

  async function start() {
    const clickhouse: ClickHouse = {
      ...stores.clickhouse,
      async insertBody(insert) {
        await stores.clickhouse.insertBody(insert);
        if (insert.table !== failsAfterInsertInto) return;
        failsAfterInsertInto = undefined;
        throw new Error('this insert was made to fail');
      },
    };
    const { database } = stores;
    log = await kafka.open();
    sink = new Sink({ log, clickhouse, database, config: kafka.config, logger, onHoursMarked: () => {} });
    await sink.start(topics);
  }

  async function restart() {
    sink.stop();
    await log.close();
    await start();
  }

  /**
   * Publishes events as the API writes them to the log; in bytes that name this release's schema, the schema id is
   * replaced by the id in the registry.
   */
  const publish = (...events: (RunEvent | Buffer)[]) => {
    const messages = events.map((event) => {
      const { value, ...message } = toLogMessage(event);
      return { ...message, value: setRegistrySchemaId(value) };
    });
    return log.publish(runEvents, messages);
  };
  const setRegistrySchemaId = (bytes: Buffer): Buffer => {
    const copy = Buffer.from(bytes);
    if (copy.length >= 5 && copy[0] === 0 && copy.readUInt32BE(1) === 1) {
      copy.writeUInt32BE(log.schemaId(runEvents), 1);
    }
    return copy;
  };
  const rows = <Row = { id: string }>(sql: string) => stores.clickhouse.query<Row>({ name: 'test', sql });
  const untilStored = async (events: readonly RunEvent[]) => {
    const list = events.map(({ runId }) => `'${runId}'`).join();
    const stored = () => rows(`SELECT DISTINCT id FROM runs WHERE id IN (${list})`);
    await until('the runs to be stored', async () => (await stored()).length === events.length, timeoutMs);
  };
  const deadLetters = async (count: number, of: Topic = runEvents): Promise<DeadLetterRecord[]> => {
    const dead = openKafkaDeadLetterQueue({ config: kafka.config, topics, logger, countReplays: async () => 0 });
    try {
      let found = await dead.list({ topics: [of] }, 1_000);
      const enough = async () => {
        found = await dead.list({ topics: [of] }, 1_000);
        return found.length >= count;
      };
      if (count > 0) await until(`${count} dead letters`, enough, timeoutMs);
      const whole: DeadLetterRecord[] = [];
      for (const { id } of found) whole.push((await dead.find(id)) as DeadLetterRecord);
      return whole;
    } finally {
      await dead.close();
    }
  };

  test('poison records of every kind go to the dead-letter queue once and unchanged, without the good ones of their batch, also after redelivery', async () => {
    failsAfterInsertInto = eventVersionsInsert.table;
    const good: RunEvent[] = [];
    const poison = poisonCases.map(([what, step, make], index) => {
      good.push(runEvent({ startTimeMicros: noonMicros + index }));
      return { what, step, bytes: make(runEvent({ values: { name: 'poison' } })) };
    });
    good.push(runEvent());
    await publish(...good.flatMap((event, index) => [event, ...(poison[index] ? [poison[index].bytes] : [])]));
    await untilStored(good);
    const found = await deadLetters(poison.length);
    const seen = found.map(({ value, step }) => `${step} ${value.toString('hex')}`);
    expect(seen.sort()).toEqual(
      poison.map(({ step, bytes }) => `${step} ${setRegistrySchemaId(bytes).toString('hex')}`).sort(),
    );
    for (const { headers, reason } of found) {
      expect(headers).toMatchObject({ from: 'test' });
      expect(reason).not.toBe('');
    }
  });

  test('a patch before its trace stays deferred across a restart and is released by its trace', async () => {
    const root = runEvent();
    const patch: RunEvent = {
      ...root,
      kind: 'patch',
      projectId: nilUuid,
      receivedAtMicros: root.receivedAtMicros + 1,
      values: { outputs: json('later') },
    };
    const deferred = async () => (await stores.database.query('SELECT FROM deferred_events')).length;
    await publish(patch);
    await until('the patch to be deferred', async () => (await deferred()) === 1, timeoutMs);
    await restart();
    await publish(root);
    await untilStored([root]);
    await until('the patch to be released', async () => (await deferred()) === 0, timeoutMs);
    expect(await rows(`SELECT outputs FROM runs FINAL WHERE id = '${root.runId}'`)).toEqual([{ outputs: '"later"' }]);
  });

  test('records of another producer with NUL in headers and headers without a value are deferred, stored, or go to the dead-letter queue', async () => {
    const root = runEvent();
    const patch: RunEvent = { ...root, kind: 'patch', projectId: nilUuid, values: { outputs: json('later') } };
    const headers = { note: 'a\0b', 'n\0': Buffer.from([0xff, 0]), empty: '' };
    const poison = framed(runEvent()).subarray(0, 20);
    const produce = (...values: Buffer[]) =>
      kafka.produce(
        runEvents,
        values.map((value) => ({ key: 'another', value: setRegistrySchemaId(value), headers, partition: 0 })),
      );
    // The client can read headers without a value, but not send them.
    const { writeVarIntBytes: write } = Encoder.prototype;
    Encoder.prototype.writeVarIntBytes = function (value) {
      return write.call(this, value?.length === 0 ? null : value);
    };
    await produce(framed(patch), poison).finally(() => {
      Encoder.prototype.writeVarIntBytes = write;
    });
    const deferred = () => stores.database.query<{ headers: unknown }>('SELECT headers FROM deferred_events');
    await until('the patch to be deferred', async () => (await deferred()).length === 1, timeoutMs);
    expect(await deferred()).toEqual([{ headers: { note: 'a\ufffdb', 'n\ufffd': '\ufffd\ufffd' } }]);
    expect(await deadLetters(1)).toMatchObject([{ step: 'walk', headers: { note: 'a\0b', empty: '' } }]);
    await publish(root);
    await untilStored([root]);
    await until('the patch to be released', async () => (await deferred()).length === 0, timeoutMs);
  });

  test('an insert that was stored but failed is redelivered and stored once', async () => {
    const events = Array.from({ length: 20 }, (_, index) => runEvent({ startTimeMicros: noonMicros + index }));
    failsAfterInsertInto = runEvents.table;
    await publish(...events);
    await untilStored(events);
    const last = runEvent();
    await publish(last);
    await untilStored([last]);
    expect(failsAfterInsertInto).toBeUndefined();
    const list = events.map(({ runId }) => `'${runId}'`).join();
    expect(await rows(`SELECT count() AS count FROM runs FINAL WHERE id IN (${list})`)).toEqual([
      { count: events.length },
    ]);
    expect(await deadLetters(0)).toEqual([]);
  });

  test('records of an older and a newer release are mixed with current ones; none is lost or goes to the dead-letter queue', async () => {
    type Schema = { fields: unknown[] };
    const changeSchema = (change: (fields: unknown[]) => unknown[]): string => {
      const schema = JSON.parse(runEvents.schema) as Schema;
      return JSON.stringify({ ...schema, fields: change(schema.fields) });
    };
    const register = async (schema: string): Promise<number> => {
      const answer = await fetch(`${servers?.registryUrl}/subjects/${kafka.nameOf(runEvents)}-value/versions`, {
        method: 'POST',
        headers: { 'content-type': 'application/vnd.schemaregistry.v1+json' },
        body: JSON.stringify({ schema }),
      });
      expect(answer.status, await answer.clone().text()).toBe(200);
      return ((await answer.json()) as { id: number }).id;
    };
    const weather = { name: 'weather', type: ['null', 'string'], default: null };
    const newer = await register(changeSchema((fields) => [...fields, weather]));
    const older = await register(changeSchema((fields) => fields.slice(0, -1)));
    await addWeather(stores.clickhouse);
    const as = (schemaId: number, bytes: Buffer) => {
      const copy = Buffer.from(bytes);
      copy.writeUInt32BE(schemaId, 1);
      return copy;
    };
    const [present, fromNewer, fromOlder, after] = [runEvent(), runEvent(), runEvent(), runEvent()];
    const sunny = Buffer.concat([Buffer.from([2, 10]), Buffer.from('sunny')]);
    const unknown = as(unknownSchemaId, framed(runEvent({ userId: garbled })));
    await publish(
      present,
      as(newer, Buffer.concat([framed(fromNewer), sunny])),
      unknown,
      // The last field is null, which takes one byte.
      as(older, framed(fromOlder).subarray(0, -1)),
      after,
    );
    await untilStored([present, fromNewer, fromOlder, after]);
    expect(await rows(`SELECT weather FROM runs FINAL WHERE id = '${fromNewer.runId}'`)).toEqual([
      { weather: 'sunny' },
    ]);
    expect(await rows(`SELECT weather FROM runs FINAL WHERE id = '${fromOlder.runId}'`)).toEqual([{ weather: null }]);
    expect(await deadLetters(1)).toMatchObject([{ step: 'schema', value: unknown }]);
  });

  test('stream events have their Kafka offset, and are stored once and only if marked for storage; poison records go to the dead-letter queue', async () => {
    sink.stop();
    await kafka.close();
    kafka = await openKafkaUnderTest(servers as KafkaServers, { kafkaPartitions: 3 });
    await start();
    const threads = Array.from({ length: 24 }, (_, index) => ({
      threadId: deriveUuid('thread over Kafka', index),
      runId: deriveUuid('run over Kafka', index),
    }));
    const round = (seq: number, kept = true) =>
      threads.map((thread) => streamMessage(streamEvent({ ...thread, seq, kept }), log));
    const [first, left, last] = [round(0), round(1, false), round(2)];
    const poison = Buffer.concat([first[0]?.value as Buffer, Buffer.from('x')]);
    failsAfterInsertInto = streamEvents.table;
    await log.publish(streamEvents, [...first, ...left, { key: 'poison', value: poison }]);
    await log.publish(streamEvents, [...last, ...first]);
    const kafkaRecords = await kafka.consume(streamEvents, 4 * threads.length + 1);
    const read = async ({ threadId, runId }: { threadId: string; runId: string }) =>
      (
        await readRunStream(stores.clickhouse, {
          deploymentId,
          threadId,
          runId,
          limitRows: 100,
          limitBytes: 1_000_000,
        })
      ).rows.map(({ seq, partition, offset }) => ({ seq, partition, offset }));
    const areAllStored = async () => (await Promise.all(threads.map(read))).every(({ length }) => length === 2);
    await until('the stream events to be stored', areAllStored, timeoutMs);
    expect(failsAfterInsertInto).toBeUndefined();
    // Returns the first position of each event.
    const locationOf = (value: Buffer | undefined) => {
      const { partition, offset } = kafkaRecords.find((each) => each.value?.equals(value as Buffer)) ?? {};
      return { partition, offset };
    };
    for (const [index, thread] of threads.entries()) {
      expect(await read(thread)).toEqual([
        { seq: 0, ...locationOf(first[index]?.value) },
        { seq: 2, ...locationOf(last[index]?.value) },
      ]);
    }
    expect(new Set(kafkaRecords.map(({ partition }) => partition)).size).toBe(3);
    expect(await deadLetters(1, streamEvents)).toMatchObject([{ step: 'walk', value: poison }]);
    expect(await deadLetters(0)).toEqual([]);
  });
});
