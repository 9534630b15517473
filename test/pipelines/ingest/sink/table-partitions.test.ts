/** Batches and traces whose rows lie in more table partitions than ClickHouse accepts in one insert. */
import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import { runEvents } from '../../../../schemas/topics.ts';
import { freshStores } from '../../../engines/stores.ts';
import { forSuite } from '../../../for-suite.ts';
import { runEvent, tenantId } from '../../runs/run-events.ts';
import { openDrivenSink, toRecordsAtOffset } from './driven-sink.ts';
import { toLogMessage } from './sink-under-test.ts';

const stores = forSuite(() => freshStores());

const dayMicros = 86_400_000_000;
const nowMicros = Date.now() * 1_000;
const config = { maxRunAgeDays: 36_500 };

const countRuns = async (table: string, traceIds: readonly string[]) => {
  const [row] = await stores.clickhouse.query<{ rows: number }>({
    name: 'test',
    sql: `SELECT toUInt32(count()) AS rows FROM ${table} FINAL WHERE tenant_id = {tenant:UUID} AND trace_id IN {traces:Array(UUID)}`,
    params: { tenant: tenantId, traces: traceIds },
  });
  return row?.rows;
};

it('stores a batch of runs that start today, of traces that start in more than a hundred months', async () => {
  const sink = await openDrivenSink({ stores, config });
  const events = Array.from({ length: 110 }, (_, month) =>
    runEvent({
      traceId: randomUUID(),
      traceTimeMicros: nowMicros - month * 31 * dayMicros,
      startTimeMicros: nowMicros,
    }),
  );
  await sink.deliver(runEvents, toRecordsAtOffset(1_000, events.map(toLogMessage)));
  await sink.close();
  const traceIds = events.map(({ traceId }) => traceId);
  expect(await countRuns('runs', traceIds)).toBe(110);
  expect(await countRuns('traces', traceIds)).toBe(110);
});

it('moves a trace whose runs start in more than a hundred weeks', async () => {
  const sink = await openDrivenSink({ stores, config, isShared: true });
  const traceId = randomUUID();
  const traceTimeMicros = nowMicros - 101 * 7 * dayMicros;
  const runs = Array.from({ length: 101 }, (_, week) =>
    runEvent({ traceId, traceTimeMicros, startTimeMicros: traceTimeMicros + week * 7 * dayMicros }),
  );
  const winning = runEvent({ traceId, traceTimeMicros: traceTimeMicros - dayMicros, startTimeMicros: traceTimeMicros });
  await sink.deliver(runEvents, toRecordsAtOffset(1_002, runs.map(toLogMessage)));
  await sink.deliver(runEvents, toRecordsAtOffset(1_001, [toLogMessage(winning)]));
  await sink.close();
  const rows = await stores.clickhouse.query({
    name: 'test',
    sql: `SELECT toUnixTimestamp64Micro(trace_time) AS micros, toUInt32(count()) AS runs FROM runs FINAL
      WHERE tenant_id = {tenant:UUID} AND trace_id = {trace:UUID} GROUP BY micros`,
    params: { tenant: tenantId, trace: traceId },
  });
  expect(rows).toEqual([{ micros: winning.traceTimeMicros, runs: 102 }]);
});
