/** Queries for the keys of the runs of a page. */
import { buildFilterClauses } from './filter-clauses.ts';
import type { PageCursor } from './page-cursor.ts';
import type { Order, RunKey } from './run-columns.ts';
import {
  buildKeyConditions,
  buildProjectsCondition,
  buildValueConditions,
  type KeyCondition,
  type RunFilter,
  type RunScope,
} from './run-scope.ts';

export interface PageRequest {
  readonly scope: RunScope;
  readonly filter: RunFilter;
  readonly order: Order;
  /** Maximum number of runs on the page. */
  readonly limitRows: number;
  readonly after?: RunKey | undefined;
  /** If present, only these runs are considered. */
  readonly among?: readonly RunKey[] | undefined;
}

export interface FoundRun extends RunKey {
  /** Size of the JSON columns of the run. */
  readonly bytes: number;
  /** False if the run is not a model call. If true, some event named the type of one. */
  readonly isModelCall: boolean;
}

export interface KeyRow {
  readonly session_id: string;
  readonly micros: number;
  readonly trace_id: string;
  readonly id: string;
}

export const keyColumns = 'session_id, toUnixTimestamp64Micro(start_time) AS micros, trace_id, id';

/** Merges the first runs of each shard, in the order of ClickHouse. */
export function mergeShards<Key extends RunKey>(runs: Key[], order: Order, limit: number): Key[] {
  const compare = (one: RunKey, other: RunKey) =>
    one.startTimeMicros - other.startTimeMicros ||
    compareUuids(one.traceId, other.traceId) ||
    compareUuids(one.runId, other.runId) ||
    compareUuids(one.projectId, other.projectId);
  return runs.sort(order === 'asc' ? compare : (one, other) => compare(other, one)).slice(0, limit);
}

/** ClickHouse compares the second half of a UUID first. */
function compareUuids(one: string, other: string): number {
  if (one === other) return 0;
  return one.slice(19) + one < other.slice(19) + other ? -1 : 1;
}

export function toRunKey({ session_id, micros, trace_id, id }: KeyRow): RunKey {
  return { projectId: session_id, startTimeMicros: micros, traceId: trace_id, runId: id };
}

/** Builds the clauses of a query for the keys of matching runs in `keyRange`, and the values that the query binds. */
export function buildKeyQuery({ scope, filter, order, after, among }: PageRequest, keyRange: KeyCondition) {
  // Subqueries of a filter need the projects; `keyRange` contains them unless it lists runs.
  const projects = among && filter.conditions ? buildProjectsCondition(scope).params : {};
  const keys = buildKeyConditions(filter);
  const values = buildValueConditions(filter);
  const position = after === undefined ? undefined : buildCursorCondition({ order, after });
  const keySql = [keyRange.sql, ...keys.sql].join(' AND ');
  const filtered = buildFilterClauses(filter.conditions, scope, keySql);
  const valueSql = [...values.sql, ...filtered.sql];
  // Each shard would evaluate a subquery for itself, on all shards.
  const hasSubquery = [filtered.withSql, filtered.rowSql, ...valueSql].some((sql) => sql?.includes('SELECT'));
  return {
    tableSql: hasSubquery ? 'runs' : '{stored_runs:Identifier}',
    keySql,
    positionSql: position?.sql ?? [],
    valueSql,
    rowSql: filtered.rowSql,
    rowSettings: filtered.rowSettings,
    withSql: filtered.withSql,
    // In the order of the key, ClickHouse stops reading at the limit.
    orderSql: `ORDER BY start_time ${order}, trace_id ${order}, id ${order}${scope.projectIds.length > 1 ? `, session_id ${order}` : ''}`,
    bound: {
      settings: filtered.settings,
      ...(!hasSubquery && { shardTables: ['runs'] }),
      ...bindParams(keyRange, projects, keys.params, values.params, filtered.params, position?.params),
    },
  };
}

/**
 * Builds the condition for the runs after the cursor. ClickHouse compares the ids, because its order of UUIDs differs
 * from the order of their text.
 */
function buildCursorCondition({ order, after }: PageCursor) {
  return {
    sql: [
      `(start_time, trace_id, id, session_id) ${order === 'desc' ? '<' : '>'}
        (fromUnixTimestamp64Micro({after_time:Int64}), {after_trace:UUID}, {after_run:UUID}, {after_project:UUID})`,
    ],
    params: {
      after_time: after.startTimeMicros,
      after_trace: after.traceId,
      after_run: after.runId,
      after_project: after.projectId,
    },
  };
}

function bindParams({ params, externalTable }: KeyCondition, ...more: readonly (KeyCondition['params'] | undefined)[]) {
  return {
    params: Object.assign({}, params, ...more) as KeyCondition['params'],
    externalTable,
  };
}
