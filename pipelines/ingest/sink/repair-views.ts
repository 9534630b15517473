import type { ClickHouse } from '../../../infra/clickhouse/clickhouse.ts';
import type { DirtyHour } from '../../../infra/event-log/event-log.ts';

/**
 * The SELECTs of the materialised views on `runs`, as in `schemas/clickhouse/0001_runs.sql`. An insert that was
 * interrupted may have reached `runs` but not the views. Repeated rows are harmless except in `traces`: a merged run
 * has its earliest time and its last sender, so the repair adds only missing traces.
 */
const views: Readonly<Record<string, string>> = {
  traces: `SELECT tenant_id, toStartOfHour(trace_time) AS hour, trace_id, min((first_received_at, id, session_id, user_id, key_id)) AS pick
    FROM found WHERE (tenant_id, toStartOfHour(trace_time), trace_id) NOT IN (
      SELECT tenant_id, hour, trace_id FROM traces WHERE (tenant_id, hour) IN (SELECT tenant_id, toDateTime(hour_seconds, 'UTC') FROM dirty_hours)
    ) GROUP BY tenant_id, hour, trace_id`,
  run_locator: 'SELECT tenant_id, id, start_time, trace_id, trace_time, session_id FROM found',
  trace_locations: `SELECT tenant_id, trace_id, min((first_received_at, trace_time, session_id)) AS pick FROM found
    GROUP BY tenant_id, trace_id`,
  trace_spans: 'SELECT tenant_id, trace_id, min(start_time), max(start_time) FROM found GROUP BY tenant_id, trace_id',
};

/**
 * Adds to the tables behind the views of `runs` what `runs` has of the traces of `hours`.
 *
 * Reads the key columns of all runs of the tenants: the key times of a trace and of its runs may be far apart, so no
 * bound on `start_time` is safe. The four tables together take 0.5 s for a tenant with 2 million runs on two cores,
 * once for each insert batch that a crash left unfinished.
 *
 * @throws what ClickHouse throws; a retry completes the repair.
 */
export async function repairViews(clickhouse: ClickHouse, hours: readonly DirtyHour[]): Promise<void> {
  if (hours.length === 0) return;
  for (const [table, select] of Object.entries(views)) {
    await clickhouse.command({
      name: 'repair-views',
      sql: `INSERT INTO ${table} WITH found AS (
          SELECT tenant_id, id, start_time, trace_id, trace_time, first_received_at, session_id, user_id, key_id FROM runs
          WHERE tenant_id IN (SELECT tenant_id FROM dirty_hours)
            AND (tenant_id, toStartOfHour(trace_time)) IN (SELECT tenant_id, toDateTime(hour_seconds, 'UTC') FROM dirty_hours)
        ) ${select}`,
      external: {
        name: 'dirty_hours',
        structure: 'tenant_id UUID, hour_seconds UInt32',
        rows: hours.map(({ tenantId, hourSeconds }) => [tenantId, hourSeconds]),
      },
      profile: 'repair',
      timeoutMs: 600_000,
    });
  }
}
