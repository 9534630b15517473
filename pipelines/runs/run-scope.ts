import type { ExternalTable, QueryParameter } from '../../infra/clickhouse/clickhouse.ts';
import { formatTime } from '../ingest/run-event/times.ts';
import type { RunKey, TimeWindow } from './run-key.ts';

/** Tenant and projects that a query is restricted to. Every query on runs has one. */
export interface RunScope {
  readonly tenantId: string;
  /** At least one. */
  readonly projectIds: readonly string[];
}

/** The conditions and parameters that restrict a query to some keys. */
export interface KeyCondition {
  /** Conditions on the sorting key, joined by AND. */
  readonly sql: string;
  readonly params: Readonly<Record<string, QueryParameter>>;
  readonly external?: ExternalTable;
}

/** Longer lists of ids are sent as an external table, because parameters have a size limit. */
const maxListedIds = 1_000;

/**
 * Restricts a query to runs of some projects in a time window. A single project uses `=`, which lets ClickHouse read in
 * key order.
 */
export function scopeCondition({ tenantId, projectIds }: RunScope, window: TimeWindow): KeyCondition {
  const times = {
    from: window.fromMicros,
    until: window.untilMicrosExclusive,
  };
  const timeSql =
    'start_time >= fromUnixTimestamp64Micro({from:Int64}) AND start_time < fromUnixTimestamp64Micro({until:Int64})';
  const [first] = projectIds;
  if (projectIds.length === 1 && first !== undefined) {
    return {
      sql: `tenant_id = {tenant:UUID} AND session_id = {project:UUID} AND ${timeSql}`,
      params: { tenant: tenantId, project: first, ...times },
    };
  }
  if (projectIds.length <= maxListedIds) {
    return {
      sql: `tenant_id = {tenant:UUID} AND session_id IN {projects:Array(UUID)} AND ${timeSql}`,
      params: { tenant: tenantId, projects: projectIds, ...times },
    };
  }
  return {
    sql: `tenant_id = {tenant:UUID} AND session_id IN projects AND ${timeSql}`,
    params: { tenant: tenantId, ...times },
    external: { name: 'projects', structure: 'session_id UUID', rows: projectIds.map((id) => [id]) },
  };
}

/**
 * Restricts a query to exactly these runs, at least one. Both the plain bounds on time and the set of tuples prune granules.
 */
export function keysCondition(tenantId: string, keys: readonly RunKey[]): KeyCondition {
  let earliest = Number.POSITIVE_INFINITY;
  let latest = 0;
  for (const { startTimeMicros } of keys) {
    earliest = Math.min(earliest, startTimeMicros);
    latest = Math.max(latest, startTimeMicros);
  }
  return {
    sql: `tenant_id = {tenant:UUID} AND start_time >= fromUnixTimestamp64Micro({from:Int64})
      AND start_time <= fromUnixTimestamp64Micro({until:Int64}) AND session_id IN (SELECT session_id FROM keys)
      AND (session_id, start_time, trace_id, id) IN (SELECT session_id, start_time, trace_id, id FROM keys)`,
    params: { tenant: tenantId, from: earliest, until: latest },
    external: {
      name: 'keys',
      structure: "session_id UUID, start_time DateTime64(6, 'UTC'), trace_id UUID, id UUID",
      rows: keys.map((key) => [key.projectId, formatTime(key.startTimeMicros), key.traceId, key.runId]),
    },
  };
}
