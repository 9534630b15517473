/** Traces that move to another project or hour, and their retention. */
import { expect, it } from 'vitest';
import { changeTraces } from '../../../pipelines/retention/change-traces.ts';
import { requestDeletion, requestKeep } from '../../../pipelines/retention/request-changes.ts';
import { runRollUp } from '../../../pipelines/usage/rollup.ts';
import { runEvents } from '../../../schemas/topics.ts';
import { forSuite } from '../../for-suite.ts';
import { openDrivenSink, toRecordsAtOffset } from '../ingest/sink/driven-sink.ts';
import { toLogMessage } from '../ingest/sink/sink-under-test.ts';
import { json, otherProjectId, projectId, runEvent, tenantId } from '../runs/run-events.ts';
import { retentionConfig } from './retention-under-test.ts';
import { openTwoTiers, storedLog } from './two-tiers.ts';

const stores = forSuite(() => openTwoTiers());

const traceTimeMicros = Date.now() * 1_000 - 86_400_000_000;

it.each([
  ['short', [projectId, otherProjectId]],
  ['long', [otherProjectId, projectId]],
] as const)(
  'all runs of a trace that is moved to the project with the %s lifetime get the long one',
  async (_, projects) => {
    const times = { traceTimeMicros, startTimeMicros: traceTimeMicros };
    const winning = runEvent({ ...times, projectId: projects[0] });
    const losing = runEvent({ ...times, projectId: projects[1], traceId: winning.traceId });
    const late = runEvent({ ...times, projectId: projects[0], traceId: winning.traceId });
    const [first, second, third] = [winning, losing, late].map((event, index) =>
      toRecordsAtOffset(index + 1, [toLogMessage(event)]),
    ) as [
      ReturnType<typeof toRecordsAtOffset>,
      ReturnType<typeof toRecordsAtOffset>,
      ReturnType<typeof toRecordsAtOffset>,
    ];
    const options = { stores, isShared: true, config: retentionConfig };
    const sinks = [await openDrivenSink(options), await openDrivenSink(options)] as const;
    try {
      await sinks[0].deliver(runEvents, second);
      await sinks[1].deliver(runEvents, first);
      for (const sink of sinks) await sink.deliver(runEvents, third);
    } finally {
      for (const sink of sinks) await sink.close();
    }
    const expiresAt = Math.floor(traceTimeMicros / 1e6) + 400 * 86_400;
    for (const [table, condition] of [
      ['runs', `trace_id = '${winning.traceId}'`],
      ['run_locator', `pick.3 = '${winning.traceId}'`],
    ]) {
      const sql = `SELECT trace_tier AS tier, toUnixTimestamp(expires_at) AS expires, count() AS runs
      FROM ${table} FINAL WHERE ${condition} GROUP BY ALL`;
      expect(await stores.clickhouse.query({ name: 'test', sql })).toEqual([{ tier: 2, expires: expiresAt, runs: 3 }]);
    }
  },
);

const hourMicros = 3_600_000_000;
const hour = Math.floor(traceTimeMicros / hourMicros) * hourMicros;

/** Returns the root of a trace, and a child that states a trace time in the next hour. */
function createRootAndChild() {
  const root = runEvent({ projectId, traceTimeMicros: hour, startTimeMicros: hour });
  const childTime = hour + hourMicros;
  const times = { traceTimeMicros: childTime, startTimeMicros: childTime };
  return { root, child: runEvent({ projectId, traceId: root.traceId, ...times }) };
}

/** Returns the hours in which a trace is counted, in seconds. */
async function readHours(traceId: string): Promise<number[]> {
  await runRollUp(stores);
  const rows = await stores.clickhouse.query<{ at: number }>({
    name: 'test',
    sql: 'SELECT toUnixTimestamp(hour) AS at FROM traces FINAL WHERE trace_id = {trace:UUID}',
    params: { trace: traceId },
  });
  return rows.map(({ at }) => at);
}

async function countTraces(): Promise<number> {
  await runRollUp(stores);
  const [counted] = await stores.clickhouse.query<{ traces: number }>({
    name: 'test',
    sql: `SELECT sum(arraySum(traces)) AS traces FROM usage_hourly FINAL WHERE dimension = 'workspace' AND notEmpty(ids)`,
  });
  return counted?.traces ?? 0;
}

it.each([
  ['one sink', false],
  ['several sinks', true],
])('a trace that %s moved to another hour is counted once after it is kept', async (_, isShared) => {
  const { root, child } = createRootAndChild();
  const counted = await countTraces();
  const sink = await openDrivenSink({ stores, isShared, config: retentionConfig });
  // The child is stored first, with a higher version than that of the root.
  await sink.deliver(runEvents, toRecordsAtOffset(1_002, [toLogMessage(child)]));
  await sink.deliver(runEvents, toRecordsAtOffset(1_001, [toLogMessage(root)]));
  await sink.close();
  expect([await readHours(root.traceId), await countTraces()]).toEqual([[hour / 1e6], counted + 1]);
  await requestKeep(stores.database, tenantId, { projectId, traceIds: [root.traceId] });
  await changeTraces({ ...stores, log: storedLog, config: retentionConfig });
  expect([await readHours(root.traceId), await countTraces()]).toEqual([[hour / 1e6], counted + 1]);
});

it('a late event of a deleted trace that was moved from another project is not counted', async () => {
  const { root, child } = createRootAndChild();
  const moved = { ...child, projectId: otherProjectId };
  const counted = await countTraces();
  const sink = await openDrivenSink({ stores, isShared: true, config: retentionConfig });
  await sink.deliver(runEvents, toRecordsAtOffset(1_002, [toLogMessage(moved)]));
  await sink.deliver(runEvents, toRecordsAtOffset(1_001, [toLogMessage(root)]));
  await sink.close();
  await requestDeletion(stores.database, tenantId, { projectId, traceIds: [root.traceId] });
  for (const _ of ['first', 'second']) {
    await changeTraces({ ...stores, log: storedLog, config: retentionConfig });
    await stores.database.execute('UPDATE trace_changes SET due_at = now()');
  }
  const next = await openDrivenSink({ stores, isShared: true, config: retentionConfig });
  await next.deliver(runEvents, toRecordsAtOffset(1_003, [toLogMessage(moved)]));
  await next.close();
  expect([await readHours(root.traceId), await countTraces()]).toEqual([[hour / 1e6], counted + 1]);
});

it('a trace that a sink moves while its rows are copied is counted once', async () => {
  const { root, child } = createRootAndChild();
  const counted = await countTraces();
  const sink = await openDrivenSink({ stores, isShared: true, config: retentionConfig });
  await sink.deliver(runEvents, toRecordsAtOffset(1_002, [toLogMessage(child)]));
  await requestKeep(stores.database, tenantId, { projectId, traceIds: [root.traceId] });
  const { clickhouse } = stores;
  // A table in memory is on one server.
  const [server = clickhouse] = clickhouse.servers;
  let moves = 0;
  // The statement reads its rows before the move, and commits after it.
  const command: typeof clickhouse.command = async (given) => {
    if (given.name !== 'keep-runs') return clickhouse.command(given);
    const copy = given.sql.replace('INSERT INTO runs', 'CREATE TABLE copied_runs ENGINE = Memory AS');
    await server.command({ ...given, sql: copy });
    await sink.deliver(runEvents, toRecordsAtOffset(1_001, [toLogMessage(root)]));
    moves += 1;
    await server.command({ name: 'test', sql: 'INSERT INTO runs SELECT * FROM copied_runs' });
  };
  await changeTraces({ ...stores, clickhouse: { ...clickhouse, command }, log: storedLog, config: retentionConfig });
  await sink.close();
  expect(moves).toBe(1);
  expect([await readHours(root.traceId), await countTraces()]).toEqual([[hour / 1e6], counted + 1]);
});

it('a trace that a sink moves to another project while it is deleted is deleted there', async () => {
  const root = runEvent({ projectId: otherProjectId, traceTimeMicros, startTimeMicros: traceTimeMicros });
  const times = { traceTimeMicros, startTimeMicros: traceTimeMicros };
  const child = runEvent({ projectId, traceId: root.traceId, ...times, values: { inputs: json({ text: 'secret' }) } });
  const sink = await openDrivenSink({ stores, isShared: true, config: retentionConfig });
  await sink.deliver(runEvents, toRecordsAtOffset(1_002, [toLogMessage(child)]));
  await requestDeletion(stores.database, tenantId, { projectId, traceIds: [root.traceId] });
  const { clickhouse } = stores;
  let moves = 0;
  const command: typeof clickhouse.command = async (given) => {
    await clickhouse.command(given);
    if (given.name !== 'mark-deleted-traces' || moves > 0) return;
    moves += 1;
    // Was accepted first, so that the trace belongs to its project.
    await sink.deliver(runEvents, toRecordsAtOffset(1_001, [toLogMessage(root)]));
  };
  for (const _ of ['first', 'second']) {
    await changeTraces({ ...stores, clickhouse: { ...clickhouse, command }, log: storedLog, config: retentionConfig });
    await stores.database.execute('UPDATE trace_changes SET due_at = now()');
  }
  await sink.close();
  const rows = await clickhouse.query({
    name: 'test',
    sql: 'SELECT id, session_id FROM runs FINAL WHERE trace_id = {trace:UUID} AND isNotNull(inputs)',
    params: { trace: root.traceId },
  });
  const [located] = await clickhouse.query<{ projects: number }>({
    name: 'test',
    sql: 'SELECT uniqExact(session_id) AS projects FROM trace_locations WHERE trace_id = {trace:UUID}',
    params: { trace: root.traceId },
  });
  expect([moves, rows, located?.projects]).toEqual([1, [], 0]);
});
