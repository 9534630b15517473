import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { ClickHouse } from '../../../../infra/clickhouse/clickhouse.ts';
import { runlakeError } from '../../../../infra/errors/runlake-error.ts';
import { expireDeferredEvents } from '../../../../pipelines/ingest/expire-deferred-events.ts';
import { nilUuid, type RunEvent } from '../../../../pipelines/ingest/run-event/run-event.ts';
import { deadLetters } from '../../../../pipelines/ingest/sink/sink-metrics.ts';
import { runOnEveryServer, runOnStoredTable } from '../../../engines/on-stored-table.ts';
import { logger } from '../../../silent-logger.ts';
import { json, noonMicros, otherProjectId, projectId, runEvent } from '../../runs/run-events.ts';
import { framed, openSink, type SinkUnderTest } from './sink-under-test.ts';

let under: SinkUnderTest;
beforeEach(async () => {
  under = await openSink();
});
afterEach(() => under.close());

const hourMicros = 3_600_000_000;
const root = runEvent();
const child = (of: RunEvent, event: Partial<RunEvent> = {}): RunEvent =>
  runEvent({ traceId: of.traceId, traceTimeMicros: of.traceTimeMicros, ...event });
const patchOf = (of: RunEvent, event: Partial<RunEvent> = {}): RunEvent => ({
  ...of,
  kind: 'patch',
  projectId: nilUuid,
  receivedAtMicros: of.receivedAtMicros + 1,
  values: { outputs: json({ done: true }) },
  ...event,
});
const stored = (ofTrace = root) =>
  under.rows<{ id: string; session_id: string; micros: number; outputs: string | null }>(
    `SELECT id, session_id, toUnixTimestamp64Micro(trace_time) AS micros, outputs
     FROM runs FINAL WHERE trace_id = '${ofTrace.traceId}' ORDER BY start_time, id`,
  );
const count = async (table: string) =>
  (await under.stores.database.query<{ count: number }>(`SELECT count(*)::int AS count FROM ${table}`))[0]?.count;
const expiredDeferredEvents = async () => {
  const { values } = await deadLetters.get();
  return values.find(({ labels }) => labels.step === 'defer')?.value ?? 0;
};
const hourOf = (micros: number) => new Date(Math.floor(micros / hourMicros) * 3_600_000).toISOString();

describe('the first event of a trace that names a project determines the project of the whole trace', () => {
  const later = noonMicros + 5 * hourMicros;

  test.each<[string, () => RunEvent[][]]>([
    ['in one batch', () => [[root, child(root, { projectId: otherProjectId, traceTimeMicros: later })]]],
    ['in a later batch', () => [[root], [child(root, { projectId: otherProjectId, traceTimeMicros: later })]]],
    ['a patch that names none', () => [[root], [patchOf(child(root), { traceTimeMicros: later })]]],
    ['a patch before it in its batch', () => [[patchOf(child(root), { traceTimeMicros: later }), root]]],
    [
      'a patch in an earlier batch, which is deferred',
      () => [[patchOf(child(root), { traceTimeMicros: later })], [root]],
    ],
  ])('%s', async (_what, batches) => {
    for (const batch of batches()) await under.publish(...batch);
    const rows = await stored();
    expect(rows).toHaveLength(2);
    for (const row of rows) expect(row).toMatchObject({ session_id: projectId, micros: root.traceTimeMicros });
    expect(await under.dirtyHours()).toEqual([hourOf(root.traceTimeMicros)]);
    expect(await under.rows('SELECT hour FROM traces FINAL')).toHaveLength(1);
    expect(await count('deferred_events')).toBe(0);
  });

  test('also after a restart, and if the trace is no longer cached', async () => {
    await under.publish(root);
    under = await under.restarted();
    await under.publish(child(root, { projectId: otherProjectId, traceTimeMicros: later }), patchOf(root));
    for (const row of await stored())
      expect(row).toMatchObject({ session_id: projectId, micros: root.traceTimeMicros });
    expect(await under.rows('SELECT trace_id FROM trace_locations FINAL')).toHaveLength(1);
  });

  test('the same trace id in another workspace is another trace', async () => {
    await under.publish(root, { ...root, tenantId: otherProjectId, projectId: otherProjectId });
    expect(await under.rows('SELECT DISTINCT tenant_id, session_id FROM runs')).toHaveLength(2);
  });
});

describe('deferred events of a trace', () => {
  test('survive a restart, and are released in log order, before the event that assigned the location', async () => {
    await under.publish(patchOf(root, { values: { outputs: json('first') } }));
    await under.publish(patchOf(root, { values: { outputs: json('second') } }));
    expect(await stored()).toEqual([]);
    expect(await count('deferred_events')).toBe(2);
    expect(await under.dirtyHours()).toEqual([]);

    under = await under.restarted();
    await under.publish(root, patchOf(root, { values: { inputs: json('third') } }));
    expect(await stored()).toMatchObject([{ outputs: '"second"' }]);
    expect(await count('deferred_events')).toBe(0);
  });

  test('are older than a later patch with other values', async () => {
    await under.publish(patchOf(root, { values: { outputs: json('old') } }));
    await under.publish(patchOf(root, { projectId, values: { outputs: json('new') } }));
    expect(await stored()).toMatchObject([{ outputs: '"new"' }]);
  });

  test('do not block each other if ClickHouse refuses one', async () => {
    const garbled = 'zzzzzzzz-zzzz-4zzz-8zzz-zzzzzzzzzzzz';
    await under.publish(framed(patchOf(root, { userId: garbled })), patchOf(root));
    await under.publish(root);
    expect(await stored()).toMatchObject([{ outputs: '{"done":true}' }]);
    expect(await count('deferred_events')).toBe(0);
    expect(await count('dead_letters')).toBe(1);
  });

  test('stay deferred if the insert that releases them fails, and are released by the next', async () => {
    await under.publish(patchOf(root));
    under.aroundNextInsert(async (insert) => {
      await insert();
      throw runlakeError('CLICKHOUSE_UNAVAILABLE', {});
    });
    await expect(under.publish(root)).rejects.toMatchObject({ code: 'CLICKHOUSE_UNAVAILABLE' });
    expect(await count('deferred_events')).toBe(1);
    await under.publish(root);
    expect(await stored()).toMatchObject([{ outputs: '{"done":true}' }]);
    expect(await count('deferred_events')).toBe(0);
  });

  test('go to the dead-letter queue after the maximum wait, the others stay', async () => {
    const { database } = under.stores;
    const old = patchOf(root);
    await under.publish(old);
    await database.query("UPDATE deferred_events SET deferred_at = now() - interval '25 hours'");
    await under.publish(patchOf(runEvent()));
    const deps = { log: under.log, database, logger };
    const dead = await expiredDeferredEvents();
    expect(await expireDeferredEvents(deps, { hours: 24 })).toBe(1);
    expect(await expiredDeferredEvents()).toBe(dead + 1);
    expect(await count('deferred_events')).toBe(1);
    const deadLetters = await database.query<{ value: Buffer; step: string }>('SELECT value, step FROM dead_letters');
    expect(deadLetters).toMatchObject([{ step: 'defer' }]);
    expect(deadLetters[0]?.value.equals(framed(old))).toBe(true);
    expect(await expireDeferredEvents(deps, { hours: 24 })).toBe(0);
  });

  test('have one outcome if they expire while their trace releases them', async () => {
    const { database } = under.stores;
    const late = runEvent();
    const before = await expiredDeferredEvents();
    await under.publish(patchOf(late));
    await database.query("UPDATE deferred_events SET deferred_at = now() - interval '25 hours'");
    const deps = { log: under.log, database, logger };
    under.aroundNextInsert(async (insertRun) => {
      await insertRun();
      under.aroundNextInsert(async (insertDeferred) => {
        expect(await expireDeferredEvents(deps, { hours: 24 })).toBe(0);
        await insertDeferred();
      });
    });
    await under.publish(late);
    expect(await count('dead_letters')).toBe(0);
    expect(await count('deferred_events')).toBe(0);
    expect(await stored(late)).toMatchObject([{ outputs: JSON.stringify({ done: true }) }]);
    expect(await expiredDeferredEvents()).toBe(before);
  });
});

/** Makes a view wait before each row. */
async function slowDown(clickhouse: ClickHouse, view: string): Promise<void> {
  const [found] = await clickhouse.query<{ select: string }>({
    name: 'test',
    sql: `SELECT as_select AS select FROM system.tables WHERE database = currentDatabase() AND name = '${view}'`,
  });
  const select = found?.select.replace(' GROUP BY ', ' WHERE NOT sleepEachRow(0.3) GROUP BY ');
  await runOnEveryServer(clickhouse, `ALTER TABLE ${view} MODIFY QUERY ${select}`);
}

describe('an insert that fails half-way', () => {
  const unavailable = () => runlakeError('CLICKHOUSE_UNAVAILABLE', {});

  test.each<[string, (insert: () => Promise<void>) => Promise<void>, number]>([
    ['before anything was stored', () => Promise.reject(unavailable()), 0],
    ['after everything was stored', (insert) => insert().then(() => Promise.reject(unavailable())), 1],
  ])('%s: its batch is rejected, and the repeat completes it, also in another process', async (_what, around, rows) => {
    under.aroundNextInsert(around);
    await expect(under.publish(root)).rejects.toMatchObject({ code: 'CLICKHOUSE_UNAVAILABLE' });
    expect(await stored()).toHaveLength(rows);
    expect(await under.dirtyHours()).toEqual([]);

    under = await under.restarted();
    await under.publish(root);
    expect(await under.dirtyHours()).toEqual([hourOf(root.traceTimeMicros)]);
    expect(await stored()).toHaveLength(1);
    expect(await under.rows('SELECT trace_id FROM traces FINAL')).toHaveLength(1);
  });

  test('after `runs`, before the tables behind its views: the repeat completes them', async () => {
    const { clickhouse } = under.stores;
    const views = ['traces', 'run_locator', 'trace_locations'];
    const contents = (table: string) => under.rows(`SELECT * FROM ${table} FINAL ORDER BY ALL`);
    const events = [root, child(root)];
    await under.publish(...events, runEvent({ startTimeMicros: noonMicros + 9 * hourMicros }));
    const before = await Promise.all(views.map(contents));
    under.aroundNextInsert(async (insert) => {
      await insert();
      for (const view of views) await runOnStoredTable(clickhouse, view, (stored) => `TRUNCATE TABLE ${stored}`);
      throw unavailable();
    });
    const lost = child(root, {
      startTimeMicros: noonMicros - 50 * 24 * hourMicros,
      receivedAtMicros: root.receivedAtMicros + 5,
      values: { promptTokens: 1 },
    });
    await expect(under.publish(lost)).rejects.toThrow();
    // The sink has an empty cache, and the tables have no trace location.
    under = await under.restarted();
    await under.publish(...events, lost);
    const after = await Promise.all(views.map(contents));
    expect(after[0]).toEqual(before[0]?.filter((row) => row.trace_id === root.traceId));
    expect(after[1]).toHaveLength(3);
    const [usageTime] = await under.rows(
      `SELECT toUnixTimestamp64Micro(min(first_usage)) AS first, toUnixTimestamp64Micro(max(last_usage)) AS last
       FROM trace_locations WHERE trace_id = '${root.traceId}'`,
    );
    expect(usageTime).toEqual({ first: lost.startTimeMicros, last: lost.startTimeMicros });
    await under.publish(child(root, { projectId: otherProjectId }));
    for (const row of await stored()) expect(row).toMatchObject({ session_id: projectId });
  });

  // Several databases, because the order in which ClickHouse commits the views of a table is not the same in each.
  test.each([1, 2, 3])(
    'in the middle: no derived table has a row of a run that is not in `runs` yet (%i)',
    async () => {
      const { clickhouse } = under.stores;
      const derived = ['traces', 'run_locator', 'trace_locations'];
      for (const view of derived) await slowDown(clickhouse, `${view}_of_keys`);
      const hasRows = async (table: string) => (await under.rows(`SELECT 1 FROM ${table} LIMIT 1`)).length > 0;
      const tablesWithoutRun = new Set<string>();
      let isStored = false;
      const published = under.publish(root).then(() => {
        isStored = true;
      });
      while (!isStored) {
        for (const table of derived) {
          if ((await hasRows(table)) && !(await hasRows('runs'))) tablesWithoutRun.add(table);
        }
      }
      await published;
      expect(await Promise.all(derived.map(hasRows))).toEqual([true, true, true]);
      expect([...tablesWithoutRun]).toEqual([]);
    },
  );

  test('between several insert batches: redelivered events are stored once', async () => {
    await under.close();
    under = await openSink({ insertBatchRows: 2 });
    const events = [root, child(root), child(root), child(root), child(root)];
    let inserts = 0;
    const failSecondInsert = async (insert: () => Promise<void>) => {
      if (++inserts === 2) throw unavailable();
      await insert();
      under.aroundNextInsert(failSecondInsert);
    };
    under.aroundNextInsert(failSecondInsert);
    await expect(under.publish(...events)).rejects.toThrow();
    expect(await stored()).toHaveLength(2);
    await under.publish(...events);
    expect(await stored()).toHaveLength(5);
  });
});

test('a batch over three years is split so that no insert has more than fifty weeks', async () => {
  const week = 7 * 24 * hourMicros;
  const events = Array.from({ length: 120 }, (_, index) => runEvent({ startTimeMicros: noonMicros - index * week }));
  await under.publish(...events);
  expect(under.inserts).toHaveLength(3);
  expect(await under.rows('SELECT id FROM runs')).toHaveLength(120);
  expect(await under.dirtyHours()).toHaveLength(120);
});

test('a batch is split at the row limit and at the byte limit', async () => {
  await under.close();
  under = await openSink({ insertBatchRows: 10, insertBatchBytes: 20_000 });
  const large = Array.from({ length: 5 }, () => runEvent({ values: { inputs: json('x'.repeat(9_000)) } }));
  await under.publish(...Array.from({ length: 25 }, () => runEvent()), ...large);
  // Two batches of ten, one of five and a large event, and two of two large events.
  expect(under.inserts).toHaveLength(5);
  expect(await under.rows('SELECT id FROM runs')).toHaveLength(30);
});

test('if schema and table disagree, the sink reports an error and sends nothing to the dead-letter queue', async () => {
  const rename = (from: string, to: string) =>
    runOnEveryServer(under.stores.clickhouse, `RENAME TABLE ${from} TO ${to}`);
  await rename('run_events', 'something_else');
  await expect(under.publish(root)).rejects.toMatchObject({ code: 'SCHEMA_MISMATCH' });
  await expect(under.sink.check()).rejects.toMatchObject({ code: 'SCHEMA_MISMATCH' });
  expect(await count('dead_letters')).toBe(0);
  await rename('something_else', 'run_events');
  await under.publish(root);
  await under.sink.check();
  expect(await stored()).toHaveLength(1);
});
