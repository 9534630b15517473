import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { runOnStoredTable } from '../../engines/on-stored-table.ts';
import { openSink, type SinkUnderTest } from '../ingest/sink/sink-under-test.ts';
import { runEvent } from '../runs/run-events.ts';
import { retentionConfig } from './retention-under-test.ts';

let under: SinkUnderTest;
beforeAll(async () => {
  under = await openSink(retentionConfig);
});
afterAll(() => under?.close());

const traceTimeMicros = Date.now() * 1_000 - 86_400_000_000;

/**
 * Stores the root of a trace, marks the trace, and stores a child through a sink that finds the mark. If the trace is
 * forgotten, its location is deleted before, and the child states another hour as the time of the trace.
 */
async function storeLateChild(mark: string, { isForgotten = false } = {}) {
  const root = runEvent({ runId: randomUUID(), traceTimeMicros, startTimeMicros: traceTimeMicros });
  const { tenantId, traceId, projectId } = { ...root, traceId: root.runId };
  const place = { tenantId, traceId, projectId, traceTimeMicros };
  await under.stores.database.execute(
    `INSERT INTO organizations (id, display_name) VALUES ($1, 'acme') ON CONFLICT DO NOTHING`,
    [tenantId],
  );
  await under.stores.database.execute(
    `INSERT INTO workspaces (id, organization_id, display_name) VALUES ($1, $1, 'acme') ON CONFLICT DO NOTHING`,
    [tenantId],
  );
  await under.stores.database.execute(
    `INSERT INTO projects (id, workspace_id, name, trace_tier) VALUES ($1, $2, 'short', 'shortlived') ON CONFLICT DO NOTHING`,
    [projectId, tenantId],
  );
  await under.publish({ ...root, ...place });
  await under.stores.clickhouse.command({
    name: 'test',
    sql: `INSERT INTO trace_marks (tenant_id, trace_id, ${mark.split('=')[0]}) SELECT '${tenantId}', '${traceId}', ${mark.split('=')[1]}`,
  });
  if (isForgotten) {
    await runOnStoredTable(
      under.stores.clickhouse,
      'trace_locations',
      (stored) => `ALTER TABLE ${stored} DELETE WHERE trace_id = '${traceId}' SETTINGS mutations_sync = 2`,
    );
  }
  under = await under.restarted();
  const stated = isForgotten ? { ...place, traceTimeMicros: traceTimeMicros + 7_200_000_000 } : place;
  const child = runEvent({ ...stated, runId: randomUUID(), startTimeMicros: traceTimeMicros + 1 });
  await under.publish({ ...child, ...stated, values: { inputs: Buffer.from('{"secret":1}') } });
  const rows = await under.rows<{ deleted: number; inputs: string | null; tier: number; day: number }>(
    `SELECT isNotNull(deleted_at) AS deleted, inputs, trace_tier AS tier,
       toInt64(round((toUnixTimestamp(expires_at) - ${Math.floor(traceTimeMicros / 1e6)}) / 86400)) AS day
     FROM runs WHERE id = '${child.runId}'`,
  );
  const traces = await under.rows(`SELECT trace_id FROM traces FINAL WHERE trace_id = '${traceId}'`);
  return { rows, traces: traces.length };
}

it('stores of a late event of a deleted trace only that its run is deleted, and counts the trace once', async () => {
  const { rows, traces } = await storeLateChild(
    'trace_tier, expires_at, deleted_at=1, toDateTime(4102444800), now64(6)',
  );
  expect(rows).toEqual([{ deleted: 1, inputs: null, tier: 1, day: 14 }]);
  expect(traces).toBe(1);
});

it('drops a late event of a deleted trace whose location is deleted, too, and counts the trace once', async () => {
  const mark = 'trace_tier, expires_at, deleted_at=1, toDateTime(4102444800), now64(6)';
  expect(await storeLateChild(mark, { isForgotten: true })).toEqual({ rows: [], traces: 1 });
});

it('gives a late event of a kept trace the long lifetime', async () => {
  const { rows } = await storeLateChild(
    `trace_tier, expires_at=2, toDateTime(${Math.floor(traceTimeMicros / 1e6) + 400 * 86_400})`,
  );
  expect(rows).toEqual([{ deleted: 0, inputs: '{"secret":1}', tier: 2, day: 400 }]);
});
