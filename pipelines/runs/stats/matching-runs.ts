import type { ClickHouseSettings } from '@clickhouse/client';
import type { ExternalTable, QueryParameter } from '../../../infra/clickhouse/clickhouse.ts';
import { startRoundingMicros } from '../../ingest/run-event/times.ts';
import { buildFilterClauses } from '../filter-clauses.ts';
import { boundTimeRange } from '../page-slices.ts';
import { type RunKey, threadIdSql } from '../run-columns.ts';
import {
  buildKeyConditions,
  buildKeysCondition,
  buildProjectsCondition,
  buildScopeCondition,
  buildValueConditions,
  type KeyCondition,
  type RunFilter,
  type RunScope,
} from '../run-scope.ts';
import { type DirtyHourList, divideHours, type StatColumn, statColumns } from './fact-rows.ts';

/**
 * Defines how runs are grouped. A run for which `sql` is null is in no group, and a run for which it has several values
 * is in each of the groups.
 */
export interface RunGrouping {
  /** SQL over `runs FINAL` that returns a text or null. `arrayJoin` returns several texts. */
  readonly sql: string;
  /** The same over the list `runs` of `run_facts`; absent if facts do not have the text. */
  readonly factsSql?: string;
  /** Expressions of the WITH clause that `sql` uses. */
  readonly expressions?: readonly string[];
  readonly params?: Readonly<Record<string, QueryParameter>>;
  /** Whether all runs of a trace are always in the same group. */
  readonly keepsTracesTogether?: boolean;
}

export interface ListedRun {
  readonly id: string;
  readonly traceId: string;
  readonly group: string;
}

/** The runs from which statistics are computed. */
export interface RunSet {
  readonly scope: RunScope;
  readonly filter: RunFilter;
  /**
   * If present, all calls of these traces count, instead of those of the matching runs, and `filter` has at most a start. A
   * query that returns `trace_id` and `grp`. A trace with several groups counts in the first of them, in order of text.
   */
  readonly countedTraces?: MatchingRuns | undefined;
  /** If present, only these runs are considered, and `filter` has no conditions. */
  readonly among?: readonly RunKey[] | undefined;
  readonly groupBy?: RunGrouping | undefined;
  /** If present, only these groups are considered. */
  readonly groups?: readonly string[] | undefined;
  /** If present, the matching runs, which were read before. Then their conditions are not analysed and evaluated again. */
  readonly listed?: readonly ListedRun[] | undefined;
  /** If present, runs that start in other hours are read from `run_facts`, which has what the other fields need. */
  readonly dirtyHours?: DirtyHourList | undefined;
}

/** A query over the matching runs, with its parameters and settings. */
export interface MatchingRuns {
  readonly sql: string;
  readonly params: Readonly<Record<string, QueryParameter>>;
  readonly externalTable?: ExternalTable;
  readonly settings: ClickHouseSettings;
}

/** Returns whether the facts of runs suffice to find and group the runs of a set. */
export function canReadFacts({ filter, among, groupBy }: RunSet): boolean {
  const { isRoot: _isRoot, startedFromMicros: _from, ...others } = filter;
  const isFiltered = Object.values(others).some((value) => value !== undefined) || among !== undefined;
  return !isFiltered && (groupBy === undefined || groupBy.factsSql !== undefined);
}

/** The edge of a set in time: clocks of stated starts and of key times differ slightly. */
function findEdge({ startedFromMicros }: RunFilter) {
  const { fromMicros } = boundTimeRange({ filter: { startedFromMicros }, order: 'desc' });
  return { fromMicros, untilMicros: fromMicros === 0 ? 0 : (startedFromMicros ?? 0) + startRoundingMicros };
}

/**
 * As {@link buildMatchingRuns} for columns of {@link statColumns}. If the set has `dirtyHours`, runs of other hours are read
 * from `run_facts`.
 */
export function buildStatRows(set: RunSet, columns: readonly StatColumn[], idCondition?: string): MatchingRuns {
  const { scope, filter, groupBy, dirtyHours } = set;
  if (set.listed !== undefined) return buildListedRows(set.listed, scope, columns, idCondition);
  const select = columns.map((name) => `${statColumns[name]} AS ${name}`);
  if (dirtyHours === undefined)
    return buildMatchingRuns(set, select, idCondition === undefined ? undefined : { sql: idCondition });
  const hours = divideHours(dirtyHours, findEdge(filter), 'rows');
  const projects = buildProjectsCondition(scope);
  const { sql: ofRuns, ...query } = buildMatchingRuns(set, select, {
    sql: [hours.runs?.sql, idCondition].filter((sql) => sql !== undefined).join(' AND '),
    params: hours.runs?.params,
  });
  const used = [
    ...columns,
    ...(idCondition === undefined ? [] : ['id']),
    ...(filter.isRoot === undefined ? [] : ['is_root']),
    ...(groupBy?.factsSql && groupBy.factsSql in statColumns ? [groupBy.factsSql] : []),
  ];
  const lists = [...new Set(used)].map((name) => `\`runs.${name}\` AS ${name}`);
  const conditions = [
    `${projects.sql} AND ${hours.facts.sql} AND run_expires_at > now()`,
    ...(filter.isRoot === undefined ? [] : [filter.isRoot ? 'is_root' : 'NOT is_root']),
    ...(idCondition === undefined ? [] : [idCondition]),
  ];
  const ofFacts = `SELECT ${[...columns, `${groupBy?.factsSql ?? `''`} AS grp`].join(', ')}
    FROM run_facts FINAL ARRAY JOIN ${lists.join(', ')}, \`runs.expires_at\` AS run_expires_at
    WHERE ${conditions.join(' AND ')}`;
  return {
    ...query,
    sql: addGroupConditions(set, hours.runs === undefined ? ofFacts : `${ofFacts} UNION ALL ${ofRuns}`),
    params: { ...query.params, ...projects.params, ...hours.facts.params },
  };
}

function buildListedRows(
  listed: readonly ListedRun[],
  { tenantId }: RunScope,
  columns: readonly StatColumn[],
  idCondition: string | undefined,
): MatchingRuns {
  // External tables are sent without escapes, so the names of the groups are a parameter.
  const groups = [...new Set(listed.map(({ group }) => group))];
  const numbers = new Map(groups.map((group, index) => [group, index + 1]));
  const condition = idCondition === undefined ? '' : `WHERE ${idCondition}`;
  return {
    sql: `SELECT ${columns.join(', ')}, {listed_groups:Array(String)}[group_number] AS grp FROM listed_runs ${condition}`,
    params: { tenant: tenantId, listed_groups: groups },
    externalTable: {
      name: 'listed_runs',
      structure: 'id UUID, trace_id UUID, group_number UInt32',
      rows: listed.map(({ id, traceId, group }) => [id, traceId, numbers.get(group) as number]),
    },
    settings: {},
  };
}

/**
 * Builds a query that returns one row for each matching run and group, with the given columns and `grp`. If the runs
 * are not grouped, `grp` is the empty text.
 *
 * @param columns SQL over `runs FINAL`.
 * @param keyCondition Further condition on the key of the run; for a filter that selects threads, on `columns`.
 */
export function buildMatchingRuns(
  set: RunSet,
  columns: readonly string[],
  keyCondition?: { readonly sql: string; readonly params?: MatchingRuns['params'] | undefined },
): MatchingRuns {
  const { scope, filter, groupBy } = set;
  const range =
    set.among === undefined
      ? buildScopeCondition(scope, boundTimeRange({ filter, order: 'desc' }))
      : buildKeysCondition(scope.tenantId, set.among);
  const keys = buildKeyConditions(filter);
  const values = buildValueConditions(filter);
  const keySql = [range.sql, ...keys.sql].join(' AND ');
  const filtered = buildFilterClauses(filter.conditions, scope, keySql);
  const selectsThreads = filter.selectsThreads === true && filter.conditions !== undefined;
  const selected = [
    ...columns,
    `${groupBy?.sql ?? `''`} AS grp`,
    ...(selectsThreads ? [`${threadIdSql} AS thread`, `(${filtered.sql.join(' AND ')}) AS is_match`] : []),
  ];
  const expressions = [...filtered.expressions, ...(groupBy?.expressions ?? [])];
  const rows = `${expressions.length > 0 ? `WITH ${expressions.join(', ')}` : ''} SELECT ${selected.join(', ')} FROM runs FINAL
    PREWHERE ${keyCondition?.sql && !selectsThreads ? `${keySql} AND ${keyCondition.sql}` : keySql}
    WHERE ${[...values.sql, ...(selectsThreads ? [] : filtered.sql)].join(' AND ')}`;
  return {
    sql: addGroupConditions(set, selectsThreads ? buildRowsOfThreads(rows, keyCondition?.sql) : rows),
    params: {
      ...range.params,
      ...keys.params,
      ...values.params,
      ...filtered.params,
      ...groupBy?.params,
      ...keyCondition?.params,
      ...(set.groups && { groups: set.groups }),
    },
    ...(range.externalTable && { externalTable: range.externalTable }),
    settings: { ...filter.threads?.settings, ...filtered.settings },
  };
}

/** Selects the rows of threads with a match. The condition on the key comes last: a match need not satisfy it. */
function buildRowsOfThreads(rows: string, keyCondition = 'true'): string {
  return `SELECT * FROM (
    SELECT * FROM (${rows}) WHERE isNotNull(thread) QUALIFY max(is_match) OVER (PARTITION BY thread) = 1)
    WHERE ${keyCondition}`;
}

function addGroupConditions({ groupBy, groups }: RunSet, rows: string): string {
  const conditions = [
    ...(groupBy === undefined ? [] : ['isNotNull(grp)']),
    ...(groups === undefined ? [] : ['grp IN {groups:Array(String)}']),
  ];
  return conditions.length === 0 ? rows : `SELECT * FROM (${rows}) WHERE ${conditions.join(' AND ')}`;
}

/** Clocks of the processes of a trace differ, so a run may begin before the run that started it. */
const clockSkewMicros = 86_400_000_000;

/** The model calls below the matching runs. */
export interface CallRange {
  /** Conditions on the key of `runs`. */
  readonly sql: string;
  /** Conditions on values. */
  readonly values: readonly string[];
  readonly params: MatchingRuns['params'];
  readonly externalTable?: ExternalTable;
  /**
   * `every`: all calls in the range count, and their ancestors are not checked. `trace`: all calls count in the traces of the
   * set, or of the matching runs, which are roots. `path`: calls count if they match or have a matching ancestor.
   */
  readonly counted: 'every' | 'trace' | 'path';
  /** Condition on `run_facts`, for the calls that are read there; then `sql` selects the other calls. */
  readonly facts?: string;
  /** Whether there are no other calls. */
  readonly isInFacts?: boolean;
}

/** Chooses how to read the model calls of a set: the simplest way that gives the correct result. */
export function findCallRange(set: RunSet): CallRange {
  const range = findStoredCallRange(set);
  if (set.dirtyHours === undefined || range.counted === 'path') return range;
  const edge =
    range.counted === 'every'
      ? findEdge(set.filter)
      : { fromMicros: Number(range.params.calls_from), untilMicros: Number(range.params.calls_from) };
  const { facts, runs } = divideHours(set.dirtyHours, edge, 'calls');
  return {
    ...range,
    sql: runs === undefined ? range.sql : `${range.sql} AND ${runs.sql}`,
    params: { ...range.params, ...runs?.params, ...facts.params },
    facts: `${buildProjectsCondition(set.scope).sql} AND ${facts.sql}`,
    isInFacts: runs === undefined,
  };
}

function findStoredCallRange(set: RunSet): CallRange {
  const { scope, filter, groupBy, groups, among } = set;
  const { isRoot, startedFromMicros, traceId, traceIds, ...others } = filter;
  const isFiltered = Object.values(others).some((value) => value !== undefined) || among !== undefined;
  const isGrouped = groups !== undefined || (groupBy !== undefined && groupBy.keepsTracesTogether !== true);
  const keys = buildKeyConditions(filter);
  const window = boundTimeRange({ filter: { startedFromMicros }, order: 'desc' });
  // A trace that began earlier has calls in the range, and a trace whose root never arrived has calls without a root.
  // If every run matches, these calls count, and for percentiles the calls of a trace count as one run.
  if (!isFiltered && !isGrouped && isRoot === undefined && set.countedTraces === undefined) {
    const range = buildScopeCondition(scope, window);
    const values = buildValueConditions({ startedFromMicros });
    return {
      ...range,
      sql: [range.sql, ...keys.sql].join(' AND '),
      values: values.sql,
      params: { ...range.params, ...keys.params, ...values.params },
      counted: 'every',
    };
  }
  const earliest = among?.reduce((min, key) => Math.min(min, key.startTimeMicros), Number.POSITIVE_INFINITY);
  // The projects cannot be sent as a second external table, because a query has only one, which contains the keys of
  // the listed runs.
  const projects: KeyCondition =
    among === undefined
      ? buildProjectsCondition(scope)
      : {
          sql: 'tenant_id = {tenant:UUID} AND session_id IN (SELECT session_id FROM keys)',
          params: { tenant: scope.tenantId },
        };
  const from = earliest ?? boundTimeRange({ filter, order: 'desc' }).fromMicros;
  return {
    sql: [`${projects.sql} AND start_time >= fromUnixTimestamp64Micro({calls_from:Int64})`, ...keys.sql].join(' AND '),
    values: buildValueConditions({}).sql,
    params: { ...projects.params, ...keys.params, calls_from: Math.max(0, from - clockSkewMicros) },
    ...(projects.externalTable && { externalTable: projects.externalTable }),
    counted: isRoot === true || set.countedTraces !== undefined ? 'trace' : 'path',
  };
}
