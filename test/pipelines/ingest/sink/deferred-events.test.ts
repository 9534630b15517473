import { randomUUID } from 'node:crypto';
import { afterEach, beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import type { LogRecord } from '../../../../infra/event-log/event-log.ts';
import type { Database, Sql } from '../../../../infra/postgres/pool.ts';
import { expireDeferredEvents } from '../../../../pipelines/ingest/expire-deferred-events.ts';
import { nilUuid, type RunEvent } from '../../../../pipelines/ingest/run-event/run-event.ts';
import { claimDeferredEvents, deferEvents } from '../../../../pipelines/ingest/sink/deferred-events.ts';
import { runEvents } from '../../../../schemas/topics.ts';
import { freshStores } from '../../../engines/stores.ts';
import { forSuite } from '../../../for-suite.ts';
import { logger } from '../../../silent-logger.ts';
import { json, runEvent, tenantId } from '../../runs/run-events.ts';
import { openDrivenSink, toRecordsAtOffset } from './driven-sink.ts';
import { unknownSchemaId } from './poison-cases.ts';
import { framed, openSink, type SinkUnderTest, toLogMessage } from './sink-under-test.ts';

const stores = forSuite(() => freshStores());

/** Returns the database, wrapped to count its statements. */
function counting(): { readonly database: Database; statements(): number } {
  let count = 0;
  return {
    statements: () => count,
    database: {
      ...stores.database,
      transaction: (work, options) =>
        stores.database.transaction(
          (tx) =>
            work({
              ...tx,
              query: (...query) => {
                count++;
                return tx.query(...query);
              },
            }),
          options,
        ),
    },
  };
}

test('deferring a thousand events takes one statement; each is stored once, unchanged, in log order', async () => {
  const traceId = randomUUID();
  const records = Array.from(
    { length: 2_500 },
    (_, offset): LogRecord => ({
      partition: 3,
      offset: offset + 1,
      key: `key "${offset}" \\ ü`,
      value: framed(runEvent({ traceId, values: { name: `run ${offset}, {"quoted"}\\` } })),
      headers: { traceparent: `00-${offset}`, words: 'a "b", {c}\\' },
      version: (1n << 63n) + BigInt(offset),
    }),
  );
  const { database, statements } = counting();
  await deferEvents(database, 'run-events', records.slice(0, 10));
  await deferEvents(database, 'run-events', records);
  expect(statements()).toBe(4);
  const { events: claimed } = await claimDeferredEvents(stores.database, 'run-events', [{ tenantId, traceId }]);
  expect(claimed.map(({ record }) => record)).toEqual(records);
});

test('large events are written in statements of bounded size', async () => {
  const records = Array.from(
    { length: 3 },
    (_, offset): LogRecord => ({
      partition: 4,
      offset,
      key: 'k',
      value: framed(runEvent({ values: { inputs: Buffer.from(JSON.stringify('x'.repeat(5 * 1024 * 1024))) } })),
      headers: {},
      version: 1n,
    }),
  );
  const { database, statements } = counting();
  await deferEvents(database, 'run-events', records);
  expect(statements()).toBe(3);
  expect(await stores.database.query('SELECT FROM deferred_events WHERE partition = 4')).toHaveLength(3);
});

test('events of two topics of the same name, one after the other, are both deferred', async () => {
  const traceId = randomUUID();
  const [former, recreated] = ['former', 'recreated'].map(
    (name, index): LogRecord => ({
      ...{ partition: 5, offset: 7, key: 'k', headers: {}, version: BigInt(index + 1) },
      value: framed(runEvent({ traceId, values: { name } })),
    }),
  ) as [LogRecord, LogRecord];
  await deferEvents(stores.database, 'run-events', [former]);
  await deferEvents(stores.database, 'run-events', [recreated]);
  await deferEvents(stores.database, 'run-events', [recreated]);
  const { events: claimed } = await claimDeferredEvents(stores.database, 'run-events', [{ tenantId, traceId }]);
  expect(claimed.map(({ record }) => record)).toEqual([former, recreated]);
});

const mebibyte = 1024 * 1024;
const maxReadBytes = 17 * mebibyte;
const root = runEvent();
const patch = (outputs: string, seconds: number): RunEvent => ({
  ...root,
  kind: 'patch',
  projectId: nilUuid,
  receivedAtMicros: root.receivedAtMicros + seconds * 1_000_000,
  values: { outputs: json(outputs) },
});
const children = Array.from({ length: 40 }, () =>
  runEvent({
    ...{ traceId: root.traceId, projectId: nilUuid, kind: 'patch' },
    values: { outputs: json('x'.repeat(mebibyte)) },
  }),
);

describe('many large deferred events', () => {
  let largest = 0;
  let under: SinkUnderTest;
  beforeEach(async () => {
    const fresh = await freshStores();
    largest = 0;
    const record = (sql: Sql): Sql => ({
      ...sql,
      async query<Row>(...query: Parameters<Sql['query']>) {
        const rows = await sql.query<Row & { value?: Buffer }>(...query);
        largest = Math.max(
          largest,
          rows.reduce((bytes, { value }) => bytes + (value?.length ?? 0), 0),
        );
        return rows;
      },
    });
    const database: Database = {
      ...fresh.database,
      ...record(fresh.database),
      transaction: (work, options) => fresh.database.transaction((tx) => work(record(tx)), options),
    };
    under = await openSink({}, { ...fresh, database });
    // The repeat of the first event overrides no newer event, although they are read apart.
    await under.publish(patch('v1', 0), ...children, patch('v2', 1));
  });
  afterEach(() => under.close());
  const countDeferred = async () => (await under.stores.database.query('SELECT FROM deferred_events')).length;

  test('are stored in slices of bounded size, and a repeat after the event that it repeats', async () => {
    await under.publish(root, patch('v1', 2));
    expect(await countDeferred()).toBe(0);
    expect(await under.rows('SELECT count() AS runs FROM runs FINAL WHERE length(outputs) > 1000000')).toEqual([
      { runs: children.length },
    ]);
    expect(await under.rows(`SELECT outputs FROM runs FINAL WHERE id = '${root.runId}'`)).toEqual([
      { outputs: '"v2"' },
    ]);
    expect(largest).toBeGreaterThan(mebibyte);
    expect(largest).toBeLessThan(maxReadBytes);
  });

  test('expire in slices of bounded size', async () => {
    const { database } = under.stores;
    await database.query("UPDATE deferred_events SET deferred_at = now() - interval '25 hours'");
    const deps = { log: under.log, database, logger };
    expect(await expireDeferredEvents(deps, { hours: 24 })).toBe(children.length + 2);
    expect(await countDeferred()).toBe(0);
    expect(largest).toBeGreaterThan(mebibyte);
    expect(largest).toBeLessThan(maxReadBytes);
  });
});

test('large deferred events may repeat an event that was accepted before them and arrives later', async () => {
  const sink = await openDrivenSink();
  onTestFinished(() => sink.close());
  const events = [patch('v1', 0), patch('v2', 1), patch('v1', 2), ...children.slice(0, 20)];
  const [first, ...others] = toRecordsAtOffset(1, events.map(toLogMessage));
  await sink.deliver(runEvents, others);
  await sink.deliver(runEvents, [...toRecordsAtOffset(0, [toLogMessage(root)]), first as LogRecord]);
  const sql = `SELECT outputs FROM runs FINAL WHERE id = '${root.runId}'`;
  expect(await sink.stores.clickhouse.query({ name: 'test', sql })).toEqual([{ outputs: '"v2"' }]);
});

test('deferred events that the log cannot read any more go to the dead-letter queue, and the others are stored', async () => {
  const sink = await openDrivenSink();
  onTestFinished(() => sink.close());
  const { database, clickhouse } = sink.stores;
  const unknownId = framed(patch('unknown', 0));
  unknownId.writeUInt32BE(unknownSchemaId, 1);
  const otherTopic = framed(patch('of another topic', 1));
  otherTopic.writeUInt32BE(2, 1);
  const tooLong = Buffer.concat([framed(patch('too long', 2)), Buffer.from('x')]);
  const values = [unknownId, otherTopic, framed(patch('stored', 3)), tooLong];
  const records = toRecordsAtOffset(
    1,
    values.map((value) => ({ key: 'k', value })),
  );
  await deferEvents(database, runEvents.name, records);
  await sink.deliver(runEvents, toRecordsAtOffset(9, [toLogMessage(root)]));
  const sql = 'SELECT outputs FROM runs FINAL';
  expect(await clickhouse.query({ name: 'test', sql })).toEqual([{ outputs: '"stored"' }]);
  expect(await database.query('SELECT step, value FROM dead_letters ORDER BY log_offset')).toEqual([
    { step: 'schema', value: unknownId },
    { step: 'schema', value: otherTopic },
    { step: 'walk', value: tooLong },
  ]);
  expect(await database.query('SELECT FROM deferred_events')).toEqual([]);
});
