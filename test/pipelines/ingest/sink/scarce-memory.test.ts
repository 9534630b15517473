/** Events that need much memory in ClickHouse when they are stored. */
import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import type { ClickHouse } from '../../../../infra/clickhouse/clickhouse.ts';
import { runEvents } from '../../../../schemas/topics.ts';
import { freshStores } from '../../../engines/stores.ts';
import { forSuite } from '../../../for-suite.ts';
import { json, runEvent } from '../../runs/run-events.ts';
import { openDrivenSink, toRecordsAtOffset } from './driven-sink.ts';
import { toLogMessage } from './sink-under-test.ts';

const stores = forSuite(() => freshStores());
const MiB = 1024 ** 2;

/** Opens a sink for whose inserts ClickHouse has `maxBytes` of memory. */
function openLimited(maxBytes: number) {
  const { clickhouse } = stores;
  const insertBody: ClickHouse['insertBody'] = (insert) =>
    clickhouse.insertBody({ ...insert, settings: { ...insert.settings, max_memory_usage: String(maxBytes) } });
  return openDrivenSink({ stores: { ...stores, clickhouse: { ...clickhouse, insertBody } } });
}

it('a batch for which ClickHouse has too little memory is stored in parts', async () => {
  const micros = Date.now() * 1_000;
  const metadata = Object.fromEntries(Array.from({ length: 50_000 }, (_, index) => [index.toString(36), 1]));
  const events = Array.from({ length: 16 }, () =>
    runEvent({
      ...{ runId: randomUUID(), startTimeMicros: micros, traceTimeMicros: micros },
      values: { name: 'run', extra: json({ metadata }) },
    }),
  );
  const sink = await openLimited(128 * MiB);
  await sink.deliver(runEvents, toRecordsAtOffset(1, events.map(toLogMessage)));
  await sink.close();
  const [stored] = await stores.clickhouse.query<{ runs: number }>({
    name: 'test',
    sql: 'SELECT uniqExact(id) AS runs FROM runs WHERE isNotNull(extra)',
  });
  expect(stored?.runs).toBe(events.length);
  expect(await stores.database.query('SELECT FROM dead_letters')).toEqual([]);
});
