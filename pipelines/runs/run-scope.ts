import type { ClickHouseSettings } from '@clickhouse/client';
import type { ExternalTable, QueryParameter } from '../../infra/clickhouse/clickhouse.ts';
import type { RunType } from '../ingest/run-event/run-event.ts';
import { formatTime } from '../ingest/run-event/times.ts';
import { liveCondition } from '../retention/lifetimes.ts';
import type { RunFilterConditions } from './filter/sql-terms.ts';
import {
  allTimes,
  isRootSql,
  type RunKey,
  shownValues,
  startedAtMicros,
  type TimeWindow,
  threadIdSql,
} from './run-columns.ts';

/** Tenant and projects that a query is restricted to. Every query on runs has a scope. */
export interface RunScope {
  readonly tenantId: string;
  /** Ids of the projects, at least one. */
  readonly projectIds: readonly string[];
}

/** The conditions and parameters that restrict a query to certain keys. */
export interface KeyCondition {
  /** Conditions on the sorting key, joined by AND. */
  readonly sql: string;
  readonly params: Readonly<Record<string, QueryParameter>>;
  readonly externalTable?: ExternalTable;
}

/**
 * Maximum length of a list of ids in a parameter. Longer lists are sent as an external table, because parameters have a
 * size limit.
 */
export const maxListedIds = 1_000;

/**
 * Restricts a query to runs of some projects. A single project uses `=`, which lets ClickHouse read in key order.
 */
export function buildProjectsCondition({ tenantId, projectIds }: RunScope): KeyCondition {
  const [first] = projectIds;
  if (projectIds.length === 1 && first !== undefined) {
    return {
      sql: 'tenant_id = {tenant:UUID} AND session_id = {project:UUID}',
      params: { tenant: tenantId, project: first },
    };
  }
  if (projectIds.length <= maxListedIds) {
    return {
      sql: 'tenant_id = {tenant:UUID} AND session_id IN {projects:Array(UUID)}',
      params: { tenant: tenantId, projects: projectIds },
    };
  }
  return {
    sql: 'tenant_id = {tenant:UUID} AND session_id IN projects',
    params: { tenant: tenantId },
    externalTable: { name: 'projects', structure: 'session_id UUID', rows: projectIds.map((id) => [id]) },
  };
}

/** Restricts a query to runs of the given projects in a time window. */
export function buildScopeCondition(scope: RunScope, window: TimeWindow): KeyCondition {
  const projects = buildProjectsCondition(scope);
  return {
    ...projects,
    sql: `${projects.sql} AND start_time >= fromUnixTimestamp64Micro({from:Int64}) AND start_time < fromUnixTimestamp64Micro({until:Int64})`,
    params: { ...projects.params, from: window.fromMicros, until: window.untilMicrosExclusive },
  };
}

/**
 * Restricts a query to exactly the runs in `keys`, which must not be empty. Both the plain bounds on time and the set
 * of tuples prune granules.
 */
export function buildKeysCondition(tenantId: string, keys: readonly RunKey[]): KeyCondition {
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
    externalTable: {
      name: 'keys',
      structure: "session_id UUID, start_time DateTime64(6, 'UTC'), trace_id UUID, id UUID",
      rows: keys.map((key) => [key.projectId, formatTime(key.startTimeMicros), key.traceId, key.runId]),
    },
  };
}

/** Conditions of a query on runs, joined by AND; absent fields add no condition. */
export interface RunFilter {
  readonly traceId?: string | undefined;
  readonly traceIds?: readonly string[] | undefined;
  readonly parentRunId?: string | undefined;
  readonly runType?: RunType | undefined;
  /** Whether the run is the root of its trace. */
  readonly isRoot?: boolean | undefined;
  readonly hasError?: boolean | undefined;
  /** If true, only runs that have ended. */
  readonly hasEnded?: boolean | undefined;
  /** Lower bound of the start of the run as shown, inclusive. */
  readonly startedFromMicros?: number | undefined;
  /** Upper bound of the start of the run as shown, exclusive. */
  readonly startedBeforeMicros?: number | undefined;
  /** Upper bound of the end of the run, inclusive. A run without an end does not match. */
  readonly endedUntilMicros?: number | undefined;
  readonly referenceExampleIds?: readonly string[] | undefined;
  /** Conditions in the filter language. */
  readonly conditions?: RunFilterConditions | undefined;
  /**
   * Whether `conditions` select threads: a root run matches if some root run of its thread satisfies them, together with the
   * other conditions of the filter.
   */
  readonly selectsThreads?: boolean | undefined;
  /** If present, a root run matches only if it belongs to one of these threads. */
  readonly threads?: ThreadSelection | undefined;
}

/** A query for the ids of threads. The names of its parameters differ from those of the query that contains it. */
export interface ThreadSelection {
  readonly sql: string;
  readonly params: Readonly<Record<string, QueryParameter>>;
  readonly settings: ClickHouseSettings;
}

/** Conditions of a WHERE clause, to be joined by AND, with the values that they bind. */
interface Conditions {
  readonly sql: readonly string[];
  readonly params: Readonly<Record<string, QueryParameter>>;
}

/**
 * Builds the conditions on the key. They have the same value for all stored rows of a run, so they are valid without
 * `FINAL`.
 */
export function buildKeyConditions({ traceId, traceIds }: RunFilter): Conditions {
  const sql: string[] = [];
  const params: Record<string, QueryParameter> = {};
  if (traceId !== undefined) {
    sql.push('trace_id = {trace:UUID}');
    params.trace = traceId;
  }
  if (traceIds !== undefined) {
    sql.push('trace_id IN {trace_ids:Array(UUID)}');
    params.trace_ids = traceIds;
  }
  return { sql, params };
}

/** Builds the conditions on values, which require `FINAL`. Excludes deleted and expired runs. */
export function buildValueConditions(filter: RunFilter): Conditions {
  const { isRoot, parentRunId, runType, hasError, hasEnded, referenceExampleIds, threads } = filter;
  const { startedFromMicros, startedBeforeMicros, endedUntilMicros } = filter;
  const sql: string[] = [liveCondition];
  const params: Record<string, QueryParameter> = {};
  if (isRoot !== undefined) {
    sql.push(isRoot ? isRootSql : `NOT ${isRootSql}`);
  }
  if (parentRunId !== undefined) {
    sql.push('parent_run_id = {parent:UUID}');
    params.parent = parentRunId;
  }
  if (runType !== undefined) {
    sql.push(`${shownValues.run_type} = {run_type:String}`);
    params.run_type = runType;
  }
  if (hasError !== undefined) {
    sql.push(`${hasError ? 'isNotNull' : 'isNull'}(error)`);
  }
  if (hasEnded) sql.push('isNotNull(ended_at)');
  if (startedFromMicros !== undefined) {
    sql.push(`${startedAtMicros} >= {started_from:Int64}`);
    params.started_from = Math.min(Math.max(startedFromMicros, 0), allTimes.untilMicrosExclusive);
  }
  if (startedBeforeMicros !== undefined) {
    sql.push(`${startedAtMicros} < {started_before:Int64}`);
    params.started_before = Math.min(Math.max(startedBeforeMicros, 0), allTimes.untilMicrosExclusive);
  }
  if (endedUntilMicros !== undefined) {
    sql.push('ended_at <= fromUnixTimestamp64Micro({ended_until:Int64})');
    params.ended_until = Math.min(Math.max(endedUntilMicros, 0), allTimes.untilMicrosExclusive);
  }
  if (referenceExampleIds !== undefined) {
    sql.push('reference_example_id IN {examples:Array(UUID)}');
    params.examples = referenceExampleIds;
  }
  if (threads !== undefined) {
    sql.push(`ifNull(${threadIdSql} IN (${threads.sql}), 0)`);
    Object.assign(params, threads.params);
  }
  return { sql, params };
}
