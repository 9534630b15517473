import { randomUUID } from 'node:crypto';
import { expect } from 'vitest';
import type { ClickHouse } from '../../../infra/clickhouse/clickhouse.ts';
import type { DirtyHour } from '../../../infra/event-log/event-log.ts';
import type { Database } from '../../../infra/postgres/pool.ts';
import { markHoursDirty } from '../../../pipelines/usage/mark-hours-dirty.ts';
import { runOnStoredTable } from '../../engines/on-stored-table.ts';
import { deriveUuid } from '../runs/run-events.ts';

/** A run as the sink stores it, with only the columns that affect usage. Times are in microseconds since 1970. */
export interface RunRow {
  readonly tenantId: string;
  readonly projectId: string;
  readonly traceId: string;
  readonly runId: string;
  readonly traceMicros: number;
  readonly acceptedMicros: number;
  readonly userId: string;
  readonly keyId: string;
}

export const hourMicros = 3_600_000_000;

export function runRow(row: Partial<RunRow>): RunRow {
  const traceId = row.traceId ?? randomUUID();
  return {
    tenantId: deriveUuid('tenant'),
    projectId: deriveUuid('project'),
    traceId,
    runId: row.traceId === undefined ? traceId : randomUUID(),
    traceMicros: Date.UTC(2026, 2, 5, 10, 30) * 1_000,
    acceptedMicros: Date.UTC(2026, 2, 5, 10, 31) * 1_000,
    userId: deriveUuid('user'),
    keyId: deriveUuid('key'),
    ...row,
  };
}

/**
 * Inserts directly into `runs`; materialized views fill `traces`. A different token makes a separate insert of the
 * same rows.
 */
export async function insertRuns(clickhouse: ClickHouse, rows: readonly RunRow[]) {
  if (rows.length === 0) return;
  const lines = rows.map((row) =>
    JSON.stringify({
      version: 1,
      location_version: 1,
      tenant_id: row.tenantId,
      session_id: row.projectId,
      start_time: textOf(row.traceMicros),
      trace_id: row.traceId,
      id: row.runId,
      trace_time: textOf(row.traceMicros),
      first_received_at: textOf(row.acceptedMicros),
      user_id: row.userId,
      key_id: row.keyId,
    }),
  );
  await clickhouse.insertBody({
    name: 'test',
    table: 'run_events',
    columns:
      'version location_version tenant_id session_id start_time trace_id id trace_time first_received_at user_id key_id'.split(
        ' ',
      ),
    format: 'JSONEachRow',
    body: Buffer.from(lines.join('\n')),
    // Unlike the rows of the sink's insert batches, the rows of a test may be years apart.
    settings: { max_partitions_per_insert_block: '0' },
  });
}

export function toDirtyHours(rows: readonly RunRow[]): DirtyHour[] {
  return rows.map(({ tenantId, traceMicros }) => ({
    tenantId,
    hourSeconds: Math.floor(traceMicros / hourMicros) * 3_600,
  }));
}

/**
 * Returns the contents of `usage_hourly` as `hour id` → traces; checks that `usage_daily` has the same totals for whole
 * days.
 */
export async function readCountsBy(clickhouse: ClickHouse, dimension: string): Promise<Record<string, number>> {
  const counted = (table: string, column: string) =>
    clickhouse.query<{ at: number; id: string; total: number }>({
      name: 'test',
      sql: `SELECT toUnixTimestamp(${column}) AS at, id, sum(counted) AS total FROM ${table} FINAL ARRAY JOIN ids AS id, traces AS counted
        WHERE dimension = {dimension:String} GROUP BY at, id ORDER BY at, id`,
      params: { dimension },
    });
  const hours = await counted('usage_hourly', 'hour');
  const days: Record<string, number> = {};
  for (const { at, id, total } of hours) {
    const key = `${Math.floor(at / 86_400) * 86_400} ${id}`;
    days[key] = (days[key] ?? 0) + total;
  }
  expect(
    Object.fromEntries((await counted('usage_daily', 'day')).map(({ at, id, total }) => [`${at} ${id}`, total])),
  ).toEqual(days);
  return Object.fromEntries(hours.map(({ at, id, total }) => [`${at} ${id}`, total]));
}

export async function readTraceCount(clickhouse: ClickHouse, dimension = 'workspace'): Promise<number> {
  return Object.values(await readCountsBy(clickhouse, dimension)).reduce((sum, traces) => sum + traces, 0);
}

function textOf(micros: number): string {
  const whole = new Date(Math.floor(micros / 1_000)).toISOString().slice(0, -1);
  return `${whole}${String(micros % 1_000).padStart(3, '0')}`;
}

interface UsageStores {
  readonly clickhouse: ClickHouse;
  readonly database: Database;
}

/** Deletes all runs, traces and usage. */
export async function emptyUsageTables({ clickhouse, database }: UsageStores): Promise<void> {
  for (const table of ['runs', 'traces', 'usage_hourly', 'usage_daily']) {
    await runOnStoredTable(clickhouse, table, (stored) => `TRUNCATE TABLE ${stored}`);
  }
  await database.query('DELETE FROM usage_dirty_hours');
}

/** Inserts runs and marks their hours dirty, as the sink does. */
export async function ingestRuns({ clickhouse, database }: UsageStores, rows: readonly RunRow[]): Promise<void> {
  await insertRuns(clickhouse, rows);
  await markHoursDirty(database, toDirtyHours(rows));
}
