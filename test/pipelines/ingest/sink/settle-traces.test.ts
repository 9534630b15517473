/** Moves of traces that end early, that share the id of a run with others, or whose rows are stored late. */
import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import { locateRun } from '../../../../pipelines/runs/locate-run.ts';
import { runEvents } from '../../../../schemas/topics.ts';
import { runOnStoredTable } from '../../../engines/on-stored-table.ts';
import { freshStores } from '../../../engines/stores.ts';
import { forSuite } from '../../../for-suite.ts';
import { otherProjectId, projectId, runEvent, tenantId } from '../../runs/run-events.ts';
import { openDrivenSink, toRecordsAtOffset } from './driven-sink.ts';
import { toLogMessage } from './sink-under-test.ts';

const stores = forSuite(() => freshStores());

const traceTimeMicros = Date.now() * 1_000 - 86_400_000_000;
const times = { traceTimeMicros, startTimeMicros: traceTimeMicros };

// The key of a run is a minimum over its locations, so the order of the ids matters.
const [lower, higher] = [projectId, otherProjectId].sort() as [string, string];

it.each([
  ['a higher', lower, higher],
  ['a lower', higher, lower],
])(
  'a move to %s project that ends after its deletions is completed when the batch is repeated',
  async (_, former, winner) => {
    const root = runEvent({ ...times, projectId: former });
    const child = runEvent({ ...times, projectId: former, traceId: root.traceId });
    const winning = runEvent({ ...times, projectId: winner, traceId: root.traceId });
    const { clickhouse } = stores;
    let failures = 0;
    const command: typeof clickhouse.command = async (given) => {
      // ClickHouse may merge the rows of both locations before it deletes those of the former one.
      if (given.name === 'delete-moved-run_locator')
        await runOnStoredTable(clickhouse, 'run_locator', (stored) => `OPTIMIZE TABLE ${stored} FINAL`);
      if (given.name === 'refill-moved-trace' && failures++ === 0) throw new Error('ClickHouse is away');
      return clickhouse.command(given);
    };
    const sink = await openDrivenSink({
      stores: { ...stores, clickhouse: { ...clickhouse, command } },
      isShared: true,
    });
    await sink.deliver(runEvents, toRecordsAtOffset(1_002, [toLogMessage(root), toLogMessage(child)]));
    const late = toRecordsAtOffset(1_001, [toLogMessage(winning)]);
    await expect(sink.deliver(runEvents, late)).rejects.toThrow();
    await sink.deliver(runEvents, late);
    await sink.close();
    for (const { runId } of [root, child, winning])
      expect(await locateRun(clickhouse, tenantId, runId)).toMatchObject({ runId, projectId: winner });
  },
);

it('a move leaves the keys of a run with the same id in another trace', async () => {
  const runId = randomUUID();
  const ids = () => ({ projectId: lower, runId, traceId: randomUUID() });
  const first = runEvent({ ...times, ...ids(), receivedAtMicros: traceTimeMicros });
  const second = runEvent({ ...times, ...ids(), receivedAtMicros: traceTimeMicros + 1 });
  const winning = runEvent({ ...times, projectId: higher, traceId: second.traceId });
  const sink = await openDrivenSink({ stores, isShared: true });
  await sink.deliver(runEvents, toRecordsAtOffset(1_002, [toLogMessage(first), toLogMessage(second)]));
  expect(await locateRun(stores.clickhouse, tenantId, runId)).toMatchObject({ traceId: first.traceId });
  await sink.deliver(runEvents, toRecordsAtOffset(1_001, [toLogMessage(winning)]));
  await sink.close();
  expect(await locateRun(stores.clickhouse, tenantId, runId)).toMatchObject({ traceId: first.traceId });
});

it('statements that search the runs of a whole project for a trace have minutes', async () => {
  const { clickhouse } = stores;
  const timeouts = new Map<string, number | undefined>();
  const query: typeof clickhouse.query = (given) => {
    timeouts.set(given.name, given.timeoutMs);
    return clickhouse.query(given);
  };
  const root = runEvent({ ...times, projectId: lower });
  const winning = runEvent({ ...times, projectId: higher, traceId: root.traceId });
  const sink = await openDrivenSink({ stores: { ...stores, clickhouse: { ...clickhouse, query } }, isShared: true });
  await sink.deliver(runEvents, toRecordsAtOffset(1_002, [toLogMessage(root)]));
  await sink.deliver(runEvents, toRecordsAtOffset(1_001, [toLogMessage(winning)]));
  await sink.close();
  for (const name of ['count-misplaced-rows', 'list-runs-to-move', 'list-hours-of-runs'])
    expect(timeouts.get(name), name).toBe(600_000);
});

it('traces of more partitions than there are connections to Postgres are moved', async () => {
  const sink = await openDrivenSink({ stores, isShared: true });
  const roots = Array.from({ length: 12 }, () => runEvent({ ...times, projectId: lower }));
  await sink.deliver(runEvents, toRecordsAtOffset(100_000, roots.map(toLogMessage), 99));
  const winners = roots.map(({ traceId }) => runEvent({ ...times, projectId: higher, traceId }));
  const deliver = (winning: (typeof winners)[0], partition: number) =>
    sink.deliver(runEvents, toRecordsAtOffset(10 + partition, [toLogMessage(winning)], partition));
  await Promise.all(winners.map(deliver));
  await sink.close();
  for (const { runId } of roots)
    expect(await locateRun(stores.clickhouse, tenantId, runId)).toMatchObject({ projectId: higher });
});

it.each([
  ['the only sink', false],
  ['one of several sinks', true],
])('a trace whose move %s did not begin before it was killed moves when its batch succeeds', async (_, isShared) => {
  const { clickhouse } = stores;
  const losing = runEvent({ ...times, projectId: lower });
  const earlier = traceTimeMicros - 7_200_000_000;
  const { traceId } = losing;
  const winning = runEvent({ traceTimeMicros: earlier, startTimeMicros: earlier, projectId: higher, traceId });
  const killed = await openDrivenSink({ stores, isShared });
  await killed.deliver(runEvents, toRecordsAtOffset(1_002, [toLogMessage(losing)]));
  const batch = toRecordsAtOffset(1_001, [toLogMessage(winning)]);
  killed.failNextInsert('after');
  await expect(killed.deliver(runEvents, batch)).rejects.toThrow();
  await killed.close();
  const sink = await openDrivenSink({ stores, isShared });
  for (const when of ['before', 'after'] as const) {
    sink.failNextInsert(when);
    await expect(sink.deliver(runEvents, batch)).rejects.toThrow();
  }
  await sink.deliver(runEvents, batch);
  await sink.close();
  const sql = `SELECT toUnixTimestamp(hour) * 1000000 AS micros FROM traces FINAL WHERE trace_id = {trace:UUID}`;
  expect(await clickhouse.query({ name: 'test', sql, params: { trace: traceId } })).toEqual([
    { micros: Math.floor(earlier / 3_600_000_000) * 3_600_000_000 },
  ]);
});

it('rows that ClickHouse stores after their sink was killed move with the next event of their trace', async () => {
  const { clickhouse } = stores;
  const losing = runEvent({ ...times, projectId: lower });
  const earlier = traceTimeMicros - 7_200_000_000;
  const winning = () =>
    runEvent({ traceTimeMicros: earlier, startTimeMicros: earlier, projectId: higher, traceId: losing.traceId });
  let storeLate = async () => {};
  const insertBody: typeof clickhouse.insertBody = async (insert) => {
    if (insert.table !== 'event_versions') storeLate = () => clickhouse.insertBody(insert);
    throw new Error('the sink is killed');
  };
  const killed = await openDrivenSink({
    stores: { ...stores, clickhouse: { ...clickhouse, insertBody } },
    isShared: true,
  });
  const batch = toRecordsAtOffset(1_002, [toLogMessage(losing)], 1);
  await expect(killed.deliver(runEvents, batch)).rejects.toThrow('the sink is killed');
  await killed.close();
  const sink = await openDrivenSink({ stores, isShared: true });
  await sink.deliver(runEvents, toRecordsAtOffset(1_001, [toLogMessage(winning())]));
  await sink.deliver(runEvents, batch);
  const sql = 'SELECT count() AS traces FROM traces FINAL WHERE trace_id = {trace:UUID}';
  const count = () => clickhouse.query({ name: 'test', sql, params: { trace: losing.traceId } });
  expect(await count()).toEqual([{ traces: 1 }]);
  await storeLate();
  expect(await count()).toEqual([{ traces: 2 }]);
  await sink.close();
  // Only a sink that reads the locations again finds both.
  const next = await openDrivenSink({ stores, isShared: true });
  await next.deliver(runEvents, toRecordsAtOffset(1_003, [toLogMessage(winning())]));
  await next.close();
  expect(await count()).toEqual([{ traces: 1 }]);
});
