import type { Warehouse } from '../../../infra/clickhouse/warehouse.ts';
import type { TouchedHour } from '../../../infra/event-log/event-log.ts';

/**
 * What the views on `runs` would have written, as in `schemas/clickhouse/0001_runs.sql`, `0007_trace_locations.sql` and
 * `0008_trace_spans.sql`: an insert that died may have reached
 * `runs` and not yet them. Repeats are harmless, except of traces: a merged run has its earliest time and its last sender, so
 * that only traces that are missing are added.
 */
const views: Readonly<Record<string, string>> = {
  traces: `SELECT tenant_id, toStartOfHour(trace_time) AS hour, trace_id, min((first_received_at, id, session_id, user_id, key_id)) AS pick
    FROM found WHERE (tenant_id, toStartOfHour(trace_time), trace_id) NOT IN (
      SELECT tenant_id, hour, trace_id FROM traces WHERE (tenant_id, hour) IN (SELECT tenant_id, toDateTime(hour_seconds, 'UTC') FROM touched)
    ) GROUP BY tenant_id, hour, trace_id`,
  run_locator: 'SELECT tenant_id, id, start_time, trace_id, trace_time, session_id FROM found',
  trace_locations: `SELECT tenant_id, trace_id, min((first_received_at, trace_time, session_id)) AS pick FROM found
    GROUP BY tenant_id, trace_id`,
  trace_spans: 'SELECT tenant_id, trace_id, min(start_time), max(start_time) FROM found GROUP BY tenant_id, trace_id',
};

/**
 * Brings the tables behind the views of `runs` up to what `runs` holds of the traces of `hours`.
 *
 * Reads the key columns of all runs of the tenants: the key times of a trace and of its runs need not lie near each other, so
 * that no bound on `start_time` is safe. All four tables together take 0.5 s for a tenant of 2 million runs on two cores, once
 * for each cut that a crash left unfinished.
 *
 * @throws what ClickHouse throws; a repeat completes it.
 */
export async function repairViews(warehouse: Warehouse, hours: readonly TouchedHour[]): Promise<void> {
  if (hours.length === 0) return;
  for (const [table, select] of Object.entries(views)) {
    await warehouse.command({
      name: 'repair-views',
      sql: `INSERT INTO ${table} WITH found AS (
          SELECT tenant_id, id, start_time, trace_id, trace_time, first_received_at, session_id, user_id, key_id FROM runs
          WHERE tenant_id IN (SELECT tenant_id FROM touched)
            AND (tenant_id, toStartOfHour(trace_time)) IN (SELECT tenant_id, toDateTime(hour_seconds, 'UTC') FROM touched)
        ) ${select}`,
      external: {
        name: 'touched',
        structure: 'tenant_id UUID, hour_seconds UInt32',
        rows: hours.map(({ tenantId, hourSeconds }) => [tenantId, hourSeconds]),
      },
      profile: 'repair',
      timeoutMs: 600_000,
    });
  }
}
