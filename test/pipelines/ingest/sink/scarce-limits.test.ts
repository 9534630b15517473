/** Batches and moves that take more memory or time than ClickHouse has for them. */
import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import type { ClickHouse } from '../../../../infra/clickhouse/clickhouse.ts';
import { locateRun } from '../../../../pipelines/runs/locate-run.ts';
import { runEvents } from '../../../../schemas/topics.ts';
import { freshStores } from '../../../engines/stores.ts';
import { forSuite } from '../../../for-suite.ts';
import { json, otherProjectId, projectId, runEvent, tenantId } from '../../runs/run-events.ts';
import { openDrivenSink, toRecordsAtOffset } from './driven-sink.ts';
import { toLogMessage } from './sink-under-test.ts';

const stores = forSuite(() => freshStores());
const MiB = 1024 ** 2;
const micros = Date.now() * 1_000;

type Insert = Parameters<ClickHouse['insertBody']>[0];

/** Returns eight events of 1 MiB each, and small ones. */
function createEvents(small: number) {
  const metadata = Object.fromEntries(Array.from({ length: 100_000 }, (_, index) => [index.toString(36), 1]));
  return Array.from({ length: 8 + small }, (_, index) =>
    runEvent({
      ...{ runId: randomUUID(), startTimeMicros: micros, traceTimeMicros: micros },
      values: { name: 'run', extra: json(index < 8 ? { metadata } : {}) },
    }),
  );
}

it.each([
  // Several large events are in a part that is not bisected any more if ClickHouse refuses its data.
  ['memory', 600, ({ settings }: Insert) => ({ settings: { ...settings, max_memory_usage: String(60 * MiB) } })],
  ['time', 0, ({ body }: Insert) => (body.length > 4 * MiB ? { timeoutMs: 1 } : {})],
])('a batch for which ClickHouse has too little %s is stored in parts', async (_, small, limit) => {
  const { clickhouse } = stores;
  let failed = 0;
  const insertBody: ClickHouse['insertBody'] = async (insert) => {
    failed += 1;
    await clickhouse.insertBody({ ...insert, ...limit(insert) });
    failed -= 1;
  };
  const sink = await openDrivenSink({ stores: { ...stores, clickhouse: { ...clickhouse, insertBody } } });
  const events = createEvents(small);
  await sink.deliver(runEvents, toRecordsAtOffset(1, events.map(toLogMessage)));
  await sink.close();
  expect(failed).toBeGreaterThan(0);
  const [stored] = await clickhouse.query<{ runs: number }>({
    name: 'test',
    sql: 'SELECT uniqExact(id) AS runs FROM runs WHERE id IN {ids:Array(UUID)} AND isNotNull(extra)',
    params: { ids: events.map(({ runId }) => runId) },
  });
  expect(stored?.runs).toBe(events.length);
  expect(await stores.database.query('SELECT FROM dead_letters')).toEqual([]);
});

it.each([
  ['one large value', { extra: json({ metadata: { key: 'x'.repeat(8 * MiB) } }) }],
  ['millions of tags', { tags: Buffer.from(`[${'1,'.repeat(4 * MiB)}1]`) }],
])('a run with %s in an indexed column needs no more memory than any other run', async (_, values) => {
  const { clickhouse } = stores;
  const insertBody: ClickHouse['insertBody'] = ({ settings, ...insert }) =>
    clickhouse.insertBody({ ...insert, settings: { ...settings, max_memory_usage: String(130 * MiB) } });
  const sink = await openDrivenSink({ stores: { ...stores, clickhouse: { ...clickhouse, insertBody } } });
  const runs = [{ inputs: json({ text: 'x'.repeat(8 * MiB) }) }, values].map((given) =>
    runEvent({
      runId: randomUUID(),
      startTimeMicros: micros,
      traceTimeMicros: micros,
      values: { name: 'run', ...given },
    }),
  );
  await sink.deliver(runEvents, toRecordsAtOffset(1, runs.map(toLogMessage)));
  await sink.close();
  const [stored] = await clickhouse.query<{ runs: number }>({
    name: 'test',
    sql: 'SELECT uniqExact(id) AS runs FROM runs WHERE id IN {ids:Array(UUID)}',
    params: { ids: runs.map(({ runId }) => runId) },
  });
  expect(stored?.runs).toBe(runs.length);
});

it('a large trace is moved with little memory', async () => {
  const { clickhouse } = stores;
  const [lower, higher] = [projectId, otherProjectId].sort() as [string, string];
  const times = { traceTimeMicros: micros, startTimeMicros: micros };
  const root = runEvent({ ...times, projectId: lower });
  const extra = Buffer.from(`{"metadata":{"text":"${'x'.repeat(4 * MiB)}"}}`);
  const children = Array.from({ length: 40 }, () =>
    runEvent({ ...times, projectId: lower, traceId: root.traceId, values: { name: 'child', extra } }),
  );
  const command: typeof clickhouse.command = ({ settings, ...given }) =>
    clickhouse.command({ ...given, settings: { ...settings, max_memory_usage: String(800 * MiB) } });
  const sink = await openDrivenSink({ stores: { ...stores, clickhouse: { ...clickhouse, command } }, isShared: true });
  await sink.deliver(runEvents, toRecordsAtOffset(1_002, [root, ...children].map(toLogMessage)));
  const winning = runEvent({ ...times, projectId: higher, traceId: root.traceId });
  await sink.deliver(runEvents, toRecordsAtOffset(1_001, [toLogMessage(winning)]));
  await sink.close();
  for (const { runId } of [root, ...children])
    expect(await locateRun(clickhouse, tenantId, runId)).toMatchObject({ runId, projectId: higher });
});
