import type { ExternalTable, QueryParameter } from '../../infra/clickhouse/warehouse.ts';
import { formatTime } from '../ingest/run-event/times.ts';
import type { RunKey, TimeWindow } from './run-key.ts';

/** Whose runs a query may meet. Every query on runs carries one. */
export interface RunScope {
  readonly tenantId: string;
  /** At least one. */
  readonly projectIds: readonly string[];
}

/** The part of a query that says where to look. */
export interface Place {
  /** Conditions on the sorting key, joined by AND. */
  readonly sql: string;
  readonly params: Readonly<Record<string, QueryParameter>>;
  readonly external?: ExternalTable;
}

/** Beyond, a list of ids travels as a table: a parameter has a size limit. */
const maxListedIds = 1_000;

/** The runs of some projects in a stretch of time. One project is named with `=`, which lets ClickHouse read in key order. */
export function placeOfScope({ tenantId, projectIds }: RunScope, window: TimeWindow): Place {
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

/** Exactly these runs, at least one: plain bounds on time beside the tuples, whose set prunes granules too. */
export function placeOfKeys(tenantId: string, keys: readonly RunKey[]): Place {
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
