/** Root runs of traces. The root of an OpenTelemetry trace does not have the id of the trace; see decision 0020. */
import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { lookupSettings } from '../../infra/clickhouse/settings.ts';
import { liveCondition } from '../retention/lifetimes.ts';
import { isRootSql, type RunKey } from './run-columns.ts';
import { buildKeysCondition, buildScopeCondition, maxListedIds } from './run-scope.ts';

interface LocationRow {
  readonly session_id: string;
  readonly first: number;
  readonly last: number;
}

/**
 * Finds the root runs of traces of a workspace, by trace. Traces whose root is not stored (yet) are omitted. Of several
 * roots, the earliest is returned, unless one has the id of the trace.
 *
 * @throws errors of ClickHouse.
 */
export async function findTraceRoots(
  clickhouse: ClickHouse,
  tenantId: string,
  traceIds: readonly string[],
): Promise<ReadonlyMap<string, string>> {
  const traces = [...new Set(traceIds)];
  const roots = new Map<string, string>();
  for (let at = 0; at < traces.length; at += maxTracesPerQuery) {
    const found = await findListedRoots(clickhouse, tenantId, traces.slice(at, at + maxTracesPerQuery));
    for (const { trace, root } of found) roots.set(trace, root);
  }
  return roots;
}

/** A trace normally has one project, so that the projects of these traces fit into a list too. */
const maxTracesPerQuery = maxListedIds / 2;

async function findListedRoots(clickhouse: ClickHouse, tenantId: string, traces: readonly string[]) {
  const locations = await clickhouse.query<LocationRow>({
    name: 'locate-traces-of-roots',
    settings: lookupSettings,
    sql: `SELECT session_id, toUnixTimestamp64Micro(min(first_start)) AS first, toUnixTimestamp64Micro(max(last_start)) AS last
          FROM trace_locations WHERE tenant_id = {tenant:UUID} AND trace_id IN {traces:Array(UUID)} GROUP BY session_id`,
    params: { tenant: tenantId, traces },
  });
  if (locations.length === 0) return [];
  const window = {
    fromMicros: Math.min(...locations.map(({ first }) => first)),
    untilMicrosExclusive: Math.max(...locations.map(({ last }) => last)) + 1,
  };
  const { sql, params, ...binding } = buildScopeCondition(
    { tenantId, projectIds: locations.map((row) => row.session_id) },
    window,
  );
  return clickhouse.query<{ trace: string; root: string }>({
    ...binding,
    name: 'find-trace-roots',
    settings: lookupSettings,
    sql: `SELECT trace_id AS trace, argMin(id, (id != trace_id, start_time)) AS root FROM runs FINAL
          PREWHERE ${sql} AND trace_id IN {traces:Array(UUID)}
          WHERE ${liveCondition} AND ${isRootSql}
          GROUP BY trace_id`,
    params: { ...params, traces },
  });
}

/** Returns the ids of those runs that are roots of their traces. @throws errors of ClickHouse. */
export async function selectRoots(
  clickhouse: ClickHouse,
  tenantId: string,
  runs: readonly RunKey[],
): Promise<ReadonlySet<string>> {
  const roots = new Set(runs.filter(({ runId, traceId }) => runId === traceId).map(({ runId }) => runId));
  const others = runs.filter(({ runId }) => !roots.has(runId));
  if (others.length === 0) return roots;
  const { sql, ...binding } = buildKeysCondition(tenantId, others);
  const rows = await clickhouse.query<{ id: string }>({
    ...binding,
    name: 'select-roots',
    settings: lookupSettings,
    sql: `SELECT id FROM runs FINAL PREWHERE ${sql} WHERE ${liveCondition} AND ${isRootSql}`,
  });
  for (const { id } of rows) roots.add(id);
  return roots;
}
