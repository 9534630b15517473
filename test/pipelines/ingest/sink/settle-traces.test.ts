/** Moves of traces that end early, that share the id of a run with others, or whose rows are stored late. */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { nilUuid } from '../../../../pipelines/ingest/run-event/run-event.ts';
import { settleContestedTraces } from '../../../../pipelines/ingest/settle-contested-traces.ts';
import { hasContestedTraces } from '../../../../pipelines/ingest/sink/settle-traces.ts';
import { locateRun } from '../../../../pipelines/runs/locate-run.ts';
import { markHoursDirty } from '../../../../pipelines/usage/mark-hours-dirty.ts';
import { hasDirtyHours, runRollUp } from '../../../../pipelines/usage/rollup.ts';
import { runEvents } from '../../../../schemas/topics.ts';
import { runOnStoredTable } from '../../../engines/on-stored-table.ts';
import { type FreshStores, freshStores } from '../../../engines/stores.ts';
import { otherProjectId, projectId, runEvent, tenantId } from '../../runs/run-events.ts';
import { openDrivenSink, toRecordsAtOffset } from './driven-sink.ts';
import { toLogMessage } from './sink-under-test.ts';

let stores: FreshStores;
beforeAll(async () => {
  stores = await freshStores();
});
afterAll(() => stores?.close());

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

/** Opens a sink whose inserts of events fail, and are stored when the returned function is called. */
async function openFailingSink() {
  const { clickhouse } = stores;
  const state = { isFailing: true, storeLate: async () => {} };
  const insertBody: typeof clickhouse.insertBody = async (insert) => {
    if (!state.isFailing) return clickhouse.insertBody(insert);
    if (insert.table !== 'event_versions') state.storeLate = () => clickhouse.insertBody(insert);
    throw new Error('the insert failed');
  };
  const sink = await openDrivenSink({
    stores: { ...stores, clickhouse: { ...clickhouse, insertBody } },
    isShared: true,
  });
  return { sink, state };
}

async function countByHour(traceId: string) {
  await runRollUp(stores);
  const query = <Row>(sql: string) => stores.clickhouse.query<Row>({ name: 'test', sql, params: { trace: traceId } });
  const [counted] = await query<{ traces: number }>(
    `SELECT sum(arraySum(traces)) AS traces FROM usage_hourly FINAL WHERE dimension = 'workspace'`,
  );
  const hours = await query<{ at: number }>(
    'SELECT toUnixTimestamp(hour) AS at FROM traces FINAL WHERE trace_id = {trace:UUID} ORDER BY at',
  );
  return { counted: counted?.traces ?? 0, hours: hours.map(({ at }) => at) };
}

const earlier = traceTimeMicros - 7_200_000_000;
const toHour = (micros: number) => Math.floor(micros / 3_600_000_000) * 3_600;

/** Returns the events of a trace that states two projects and hours. The event with the lower offset wins. */
function createContradiction() {
  const losing = runEvent({ ...times, projectId: lower });
  const own = { traceTimeMicros: earlier, startTimeMicros: earlier, projectId: higher, traceId: losing.traceId };
  return { losing, winning: runEvent(own) };
}

it.each([
  ['their sink was killed', false],
  ['their sink has stored them again', true],
])('rows that ClickHouse stores after %s are counted once, without a further event', async (_, isRetried) => {
  const { losing, winning } = createContradiction();
  const before = await countByHour(losing.traceId);
  const { sink: failing, state } = await openFailingSink();
  const batch = toRecordsAtOffset(1_002, [toLogMessage(losing)], 1);
  await expect(failing.deliver(runEvents, batch)).rejects.toThrow('the insert failed');
  const sink = await openDrivenSink({ stores, isShared: true });
  await sink.deliver(runEvents, toRecordsAtOffset(1_001, [toLogMessage(winning)]));
  state.isFailing = false;
  await (isRetried ? failing : sink).deliver(runEvents, batch);
  await failing.close();
  await sink.close();
  const once = { counted: before.counted + 1, hours: [toHour(earlier)] };
  expect(await countByHour(losing.traceId)).toEqual(once);
  await state.storeLate();
  expect((await countByHour(losing.traceId)).hours).toHaveLength(2);
  await markHoursDirty(stores.database, [{ tenantId, hourSeconds: toHour(traceTimeMicros) }]);
  expect((await countByHour(losing.traceId)).counted).toBe(before.counted + 2);
  // The job did not run for two hours.
  if (isRetried) await stores.database.execute(`UPDATE contested_traces SET noticed_at = now() - interval '2 hours'`);
  await settleContestedTraces(stores);
  expect(await countByHour(losing.traceId)).toEqual(once);
  expect(await locateRun(stores.clickhouse, tenantId, losing.runId)).toMatchObject({ projectId: higher });
});

it('rows that ClickHouse stores late at a location that their sink had cached are counted once', async () => {
  const { losing, winning } = createContradiction();
  const { counted } = await countByHour(losing.traceId);
  const { sink: failing, state } = await openFailingSink();
  state.isFailing = false;
  await failing.deliver(runEvents, toRecordsAtOffset(1_002, [toLogMessage(losing)], 1));
  const sink = await openDrivenSink({ stores, isShared: true });
  await sink.deliver(runEvents, toRecordsAtOffset(1_001, [toLogMessage(winning)]));
  await stores.database.execute(`UPDATE contested_traces SET noticed_at = now() - interval '2 days'`);
  // The patch names no project.
  const patch = runEvent({ ...times, runId: losing.runId, kind: 'patch', projectId: nilUuid });
  const batch = toRecordsAtOffset(1_003, [toLogMessage(patch)], 1);
  state.isFailing = true;
  await expect(failing.deliver(runEvents, batch)).rejects.toThrow('the insert failed');
  // The sink inserts at the cached location again, and then moves the rows.
  state.isFailing = false;
  await failing.deliver(runEvents, batch);
  for (const each of [failing, sink]) await each.close();
  await state.storeLate();
  await markHoursDirty(stores.database, [{ tenantId, hourSeconds: toHour(traceTimeMicros) }]);
  expect(await countByHour(losing.traceId)).toMatchObject({ counted: counted + 2 });
  await settleContestedTraces(stores);
  expect(await countByHour(losing.traceId)).toEqual({ counted: counted + 1, hours: [toHour(earlier)] });
  // Other sinks may still have cached the location.
  await stores.database.execute(`UPDATE contested_traces SET noticed_at = now() - interval '2 hours'`);
  await settleContestedTraces(stores);
  expect(await hasContestedTraces(stores.database)).toBe(true);
});

it('a trace whose events state two hours is not settled if they are stored under one', async () => {
  const { losing, winning } = createContradiction();
  await stores.database.execute('DELETE FROM contested_traces');
  const sink = await openDrivenSink({ stores, isShared: true });
  await sink.deliver(runEvents, toRecordsAtOffset(1_001, [toLogMessage(winning), toLogMessage(losing)]));
  await sink.close();
  expect(await hasContestedTraces(stores.database)).toBe(true);
  await runRollUp(stores);
  await settleContestedTraces(stores);
  expect(await hasDirtyHours(stores.database)).toBe(false);
  expect(await hasContestedTraces(stores.database)).toBe(true);
  await stores.database.execute(`UPDATE contested_traces SET noticed_at = now() - interval '2 hours'`);
  await settleContestedTraces(stores);
  expect(await hasContestedTraces(stores.database)).toBe(false);
});
