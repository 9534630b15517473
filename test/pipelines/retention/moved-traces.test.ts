/** Traces that move to another project or hour, and their retention. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { changeTraces, requestKeep } from '../../../pipelines/retention/change-traces.ts';
import { runRollUp } from '../../../pipelines/usage/rollup.ts';
import { runEvents } from '../../../schemas/topics.ts';
import { type FreshStores, freshStores } from '../../engines/stores.ts';
import { openDrivenSink, toRecordsAtOffset } from '../ingest/sink/driven-sink.ts';
import { toLogMessage } from '../ingest/sink/sink-under-test.ts';
import { otherProjectId, projectId, runEvent, tenantId } from '../runs/run-events.ts';
import { retentionConfig } from './retention-under-test.ts';

let stores: FreshStores;
beforeAll(async () => {
  stores = await freshStores();
  const { database } = stores;
  await database.execute(`INSERT INTO organizations (id, display_name) VALUES ($1, 'acme')`, [tenantId]);
  await database.execute(`INSERT INTO workspaces (id, organization_id, display_name) VALUES ($1, $1, 'acme')`, [
    tenantId,
  ]);
  await database.execute(
    `INSERT INTO projects (id, workspace_id, name, trace_tier)
     VALUES ($1, $3, 'short', 'shortlived'), ($2, $3, 'long', 'longlived')`,
    [projectId, otherProjectId, tenantId],
  );
});
afterAll(() => stores?.close());

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

it.each([
  ['one sink', false],
  ['several sinks', true],
])('a trace that %s moved to another hour is counted once after it is kept', async (_, isShared) => {
  const hour = Math.floor(traceTimeMicros / hourMicros) * hourMicros;
  const root = runEvent({ projectId, traceTimeMicros: hour, startTimeMicros: hour });
  const childTime = hour + hourMicros;
  const child = runEvent({
    ...{ projectId, traceId: root.traceId, traceTimeMicros: childTime, startTimeMicros: childTime },
  });
  const sink = await openDrivenSink({ stores, isShared, config: retentionConfig });
  // The child is stored first, with a higher version than that of the root.
  await sink.deliver(runEvents, toRecordsAtOffset(1_002, [toLogMessage(child)]));
  await sink.deliver(runEvents, toRecordsAtOffset(1_001, [toLogMessage(root)]));
  await sink.close();
  const hours = async () => {
    await runRollUp(stores);
    const rows = await stores.clickhouse.query<{ at: number }>({
      name: 'test',
      sql: 'SELECT toUnixTimestamp(hour) AS at FROM traces FINAL WHERE trace_id = {trace:UUID}',
      params: { trace: root.traceId },
    });
    const [counted] = await stores.clickhouse.query<{ traces: number }>({
      name: 'test',
      sql: `SELECT sum(arraySum(traces)) AS traces FROM usage_hourly FINAL
            WHERE dimension = 'workspace' AND notEmpty(ids) AND toUnixTimestamp(hour) IN ({first:Int64}, {second:Int64})`,
      params: { first: hour / 1e6, second: childTime / 1e6 },
    });
    return { at: rows.map(({ at }) => at), counted: counted?.traces };
  };
  const before = await hours();
  expect(before.at).toEqual([hour / 1e6]);
  await requestKeep(stores.database, tenantId, { projectId, traceIds: [root.traceId] });
  const log = { position: async () => ({}), isStored: async () => true };
  await changeTraces({ ...stores, log, config: retentionConfig });
  expect(await hours()).toEqual(before);
});
