/** Properties of the schema without which ClickHouse or the log would silently lose or mix data. */
import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import type { ClickHouse, Query } from '../../infra/clickhouse/clickhouse.ts';
import type { LogRecord } from '../../infra/event-log/event-log.ts';
import { costSql } from '../../pipelines/costs/cost-sql.ts';
import { insertBatch } from '../../pipelines/ingest/sink/insert-batch.ts';
import { findPage } from '../../pipelines/runs/find-page.ts';
import { attachmentEvents, feedbackEvents, runEvents, streamEvents, topics } from '../../schemas/topics.ts';
import { runOnStoredTable } from '../engines/on-stored-table.ts';
import { createProxyTo, forSuite } from '../for-suite.ts';
import { buildContainer, openSink, toLogMessage } from '../pipelines/ingest/sink/sink-under-test.ts';
import { insertEvents, noonMicros, runEvent, tenantId } from '../pipelines/runs/run-events.ts';

const under = forSuite(() => openSink());
const clickhouse = createProxyTo(() => under.stores.clickhouse);

const weekMicros = 7 * 24 * 3_600 * 1_000_000;

describe('columns of the tables of run events', () => {
  const tables = ['runs', 'traces', 'run_locator', 'trace_locations'];

  it.each(tables)('%s: each is part of the key, or merges by a minimum or a maximum', async (table) => {
    const columns = await under.rows<{ name: string; type: string }>(
      `SELECT name, type FROM system.columns
       WHERE database = currentDatabase() AND table = '${table}' AND NOT is_in_sorting_key AND default_kind != 'ALIAS'`,
    );
    expect(columns.length).toBeGreaterThan(0);
    expect(columns.filter(({ type }) => !/^SimpleAggregateFunction\((min|max), /.test(type))).toEqual([]);
  });

  it('a run has a rank for each value that events set, and no lists', async () => {
    const columns = await under.rows<{ name: string; type: string; expression: string }>(
      `SELECT name, type, default_expression AS expression FROM system.columns
       WHERE database = currentDatabase() AND table = 'runs' AND (name LIKE 'ranked_%' OR default_expression LIKE '%ranked_%')
         AND name NOT LIKE '%trace_time' AND name NOT LIKE '%price%' AND name NOT LIKE '%_kinds' AND name != 'states_usage'`,
    );
    const ranked = columns.filter(({ name }) => name.startsWith('ranked_'));
    expect(ranked.length).toBe(22);
    for (const { name, type } of ranked) {
      expect(type, name).toMatch(
        /^SimpleAggregateFunction\(max, (String|Tuple\(UInt64, (Int64|UUID|DateTime64\(6, 'UTC'\))\))\)$/,
      );
      const column = name.slice('ranked_'.length);
      const alias = columns.find((each) => each.name === column)?.expression;
      expect(alias ?? costSql[column as keyof typeof costSql], name).toContain(name);
    }
    expect(columns).toHaveLength(44 - Object.keys(costSql).length);
  });

  it('a run has the price of the strongest source, then of the highest rank', async () => {
    const [price] = await under.rows<{ type: string }>(
      `SELECT type FROM system.columns WHERE database = currentDatabase() AND table = 'runs' AND name = 'ranked_price'`,
    );
    expect(price?.type).toMatch(/^SimpleAggregateFunction\(max, Tuple\(UInt8, UInt64, /);
  });
});

describe('schemas of the log', () => {
  it.each([
    [runEvents, 'first_received_at'],
    [feedbackEvents, 'received_at'],
    [attachmentEvents, 'received_at'],
    [streamEvents, 'created_at'],
    [streamEvents, 'expires_at'],
  ])('$name requires its time of receipt, which would otherwise default to 1970', (topic, name) => {
    const { fields } = JSON.parse(topic.schema) as { fields: { name: string; doc?: string }[] };
    const times = fields.filter((field) => /received_at$|accepted/.test(field.name) || field.name === name);
    // The field has no `null` among its types, and no default.
    const required = { name, type: { type: 'long', logicalType: 'timestamp-micros' } };
    expect(times.map(({ doc, ...field }) => field)).toEqual([required]);
  });

  it('are all covered here', () => {
    expect(topics).toEqual([runEvents, feedbackEvents, attachmentEvents, streamEvents]);
  });

  it.each(topics)('$name has no list, whose count could make the walk over one bad record take hours', ({ schema }) => {
    expect(schema).not.toMatch(/"type":\s*"(array|map)"/);
  });
});

describe('an insert batch', () => {
  /** Returns records at the first offsets, one for each week. */
  const records = (weeks: number, name: string, projectId: string = randomUUID()): LogRecord[] =>
    Array.from({ length: weeks }, (_, index) => {
      const event = runEvent({
        projectId,
        startTimeMicros: noonMicros + index * weekMicros,
        values: { name: `${name} ${index}` },
      });
      return { ...toLogMessage(event), partition: 0, offset: index, headers: {}, version: BigInt(index + 1) };
    });

  const insert = (records: readonly LogRecord[], other: ClickHouse = clickhouse) =>
    insertBatch(
      {
        topic: runEvents,
        partition: 0,
        schema: buildContainer(runEvents),
        records: records.map((record) => ({ record, schemaId: 1 })),
      },
      { log: under.log, clickhouse: other, database: under.stores.database },
    );

  /**
   * A test cannot make ClickHouse fail between two partitions; dropping some partitions leaves the same state as such a
   * failure.
   */
  it('stored in only some table partitions is completed by its repeat, without duplicates', async () => {
    const projectId = randomUUID();
    const batch = records(12, 'half', projectId);
    const stored = () =>
      under.rows(
        `SELECT (SELECT uniqExact(id) FROM runs WHERE session_id = '${projectId}') AS runs,
          (SELECT uniqExact(id, _partition_id) FROM runs WHERE session_id = '${projectId}') AS partitions,
          (SELECT uniqExact(id) FROM run_locator WHERE pick.5 = '${projectId}') AS places,
          (SELECT uniqExact(trace_id) FROM traces WHERE pick.3 = '${projectId}') AS traces`,
      );
    const whole = [{ runs: 12, partitions: 12, places: 12, traces: 12 }];
    await insert(batch);
    expect(await stored()).toEqual(whole);
    for (const week of [1, 5, 11]) {
      const at = noonMicros + week * weekMicros;
      const monday = `toMonday(fromUnixTimestamp64Micro(${at}, 'UTC'))`;
      const [row] = await under.rows<{ monday: string }>(`SELECT toString(${monday}) AS monday`);
      await runOnStoredTable(clickhouse, 'runs', (stored) => `ALTER TABLE ${stored} DROP PARTITION '${row!.monday}'`);
    }
    expect(await stored()).toEqual([{ ...whole[0], runs: 9, partitions: 9 }]);
    for (let time = 0; time < 2; time += 1) {
      await insert(batch);
      expect(await stored()).toEqual(whole);
    }
  });
});

describe('the keys of a page', () => {
  it('are read from few granules after a cursor, because plain bounds accompany its tuple', async () => {
    const projectId = randomUUID();
    const rows = 40_000;
    const events = Array.from({ length: rows }, (_, index) =>
      runEvent({ projectId, startTimeMicros: noonMicros + index * 1_000_000 }),
    );
    await insertEvents(clickhouse, events);
    await runOnStoredTable(clickhouse, 'runs', (stored) => `OPTIMIZE TABLE ${stored} FINAL`);
    const queries: Query[] = [];
    const recording: ClickHouse = {
      ...clickhouse,
      query(query) {
        queries.push(query);
        return clickhouse.query(query);
      },
    };
    const last = events[1_000]!;
    const after = { projectId, startTimeMicros: last.startTimeMicros, traceId: last.traceId, runId: last.runId };
    for (const filter of [{}, { isRoot: true }]) {
      const page = await findPage(recording, {
        scope: { tenantId, projectIds: [projectId] },
        filter,
        order: 'desc',
        limitRows: 100,
        after,
      });
      expect(page.map(({ runId }) => runId)).toEqual(
        events
          .slice(899, 1_000)
          .reverse()
          .map(({ runId }) => runId),
      );
    }
    const found = queries.filter(({ name }) => name === 'find-runs' || name === 'find-newest-runs');
    expect(new Set(found.map(({ name }) => name)).size).toBe(2);
    for (const query of found) {
      const plan = (
        await clickhouse.queryText({ ...query, sql: `EXPLAIN indexes = 1 ${query.sql}`, format: 'TSVRaw' })
      ).toString();
      const granules = [...plan.matchAll(/Granules: (\d+)\/(\d+)/g)].map(([, read, of]) => ({
        read: Number(read),
        of: Number(of),
      }));
      // The 1,000 runs before the cursor, in granules of about 340 runs.
      expect(granules.at(-1)!.read, plan).toBeLessThanOrEqual(4);
      expect(Math.max(...granules.map(({ of }) => of)), plan).toBeGreaterThanOrEqual(40);
    }
  });
});
