import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { LogRecord } from '../../../../infra/event-log/event-log.ts';
import type { Database } from '../../../../infra/postgres/pool.ts';
import { claimDeferredEvents, deferEvents } from '../../../../pipelines/ingest/sink/deferred-events.ts';
import { type FreshStores, freshStores } from '../../../engines/stores.ts';
import { runEvent, tenantId } from '../../runs/run-events.ts';
import { framed } from './sink-under-test.ts';

let stores: FreshStores;
beforeAll(async () => {
  stores = await freshStores();
});
afterAll(() => stores?.close());

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
  const claimed = await claimDeferredEvents(stores.database, 'run-events', [{ tenantId, traceId }]);
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
  const claimed = await claimDeferredEvents(stores.database, 'run-events', [{ tenantId, traceId }]);
  expect(claimed.map(({ record }) => record)).toEqual([former, recreated]);
});
