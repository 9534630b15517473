import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import type { RunKey } from './run-key.ts';

/** Key of a run, and the start time of its trace. */
export interface LocatedRun extends RunKey {
  readonly traceTimeMicros: number;
}

interface LocatorRow {
  readonly id: string;
  readonly micros: number;
  readonly trace_id: string;
  readonly trace_micros: number;
  readonly session_id: string;
}

/** Finds runs of a workspace by id; ids that are not stored are left out. */
export async function locateRuns(
  clickhouse: ClickHouse,
  tenantId: string,
  runIds: readonly string[],
): Promise<LocatedRun[]> {
  if (runIds.length === 0) return [];
  const rows = await clickhouse.query<LocatorRow>({
    name: 'locate-runs',
    sql: `SELECT id, toUnixTimestamp64Micro(start_time) AS micros, trace_id,
            toUnixTimestamp64Micro(trace_time) AS trace_micros, session_id
          FROM run_locator FINAL
          WHERE tenant_id = {tenant:UUID} AND id IN ids`,
    params: { tenant: tenantId },
    external: { name: 'ids', structure: 'id UUID', rows: [...new Set(runIds)].map((id) => [id]) },
  });
  return rows.map((row) => ({
    runId: row.id,
    startTimeMicros: row.micros,
    traceId: row.trace_id,
    traceTimeMicros: row.trace_micros,
    projectId: row.session_id,
  }));
}

/** Finds one run; undefined if it is not stored (yet). */
export async function locateRun(
  clickhouse: ClickHouse,
  tenantId: string,
  runId: string,
): Promise<LocatedRun | undefined> {
  return (await locateRuns(clickhouse, tenantId, [runId]))[0];
}

/** The project of a trace; empty if it is not stored (yet). */
export async function locateTrace(clickhouse: ClickHouse, tenantId: string, traceId: string): Promise<string[]> {
  const rows = await clickhouse.query<{ session_id: string }>({
    name: 'locate-trace',
    sql: `SELECT min(pick).3 AS session_id FROM trace_locations
          WHERE tenant_id = {tenant:UUID} AND trace_id = {trace:UUID} GROUP BY trace_id`,
    params: { tenant: tenantId, trace: traceId },
  });
  return rows.map((row) => row.session_id);
}
