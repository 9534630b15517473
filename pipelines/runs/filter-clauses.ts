import type { ClickHouseSettings } from '@clickhouse/client';
import { liveCondition } from '../retention/lifetimes.ts';
import { buildFilterSql, type FilterSql } from './filter/run-filter.ts';
import type { RunFilterConditions } from './filter/sql-terms.ts';
import { buildProjectsCondition, type RunScope } from './run-scope.ts';

/** The parts of a query on `runs FINAL` that select the runs that match a filter. */
export interface FilterClauses
  extends Omit<FilterSql, 'rowSql' | 'rowSettings'>,
    Partial<Pick<FilterSql, 'rowSql' | 'rowSettings'>> {
  /** WITH clause, to be placed before SELECT; empty if no clause is needed. */
  readonly withSql: string;
}

export const filterSettings = {
  // Conditions are evaluated from left to right, each only for the rows that satisfy the conditions before it.
  short_circuit_function_evaluation: 'force_enable',
  precise_float_parsing: 1,
  // A filter with many conditions produces long SQL.
  max_query_size: '4000000',
} as const satisfies ClickHouseSettings;

/**
 * Builds the clauses for conditions in the filter language, for a query that reads the runs of `scope` in `keyRange`.
 * Subqueries on other runs of the same traces read the time range between the first and the last of these runs.
 *
 * @param live SQL condition: a merged row of runs or feedback is neither deleted nor expired.
 */
export function buildFilterClauses(
  conditions: RunFilterConditions | undefined,
  scope: RunScope,
  keyRange: string,
  live = liveCondition,
): FilterClauses {
  if (conditions === undefined)
    return { withSql: '', expressions: [], sql: [], params: {}, settings: {}, usesTraces: false };
  const projects = buildProjectsCondition(scope).sql;
  const traceRange = `${projects} AND start_time >= trace_times.1 AND start_time <= trace_times.2`;
  const { sql, rowSql, rowSettings, expressions, params, usesTraces, settings } = buildFilterSql(
    conditions,
    projects,
    traceRange,
    live,
  );
  const traceTimesSql = `(SELECT (min(first_start), max(last_start)) FROM trace_locations WHERE tenant_id = {tenant:UUID}
    AND trace_id IN (SELECT trace_id FROM runs WHERE ${keyRange})) AS trace_times`;
  const withExpressions = [...(usesTraces ? [traceTimesSql] : []), ...expressions];
  return {
    withSql: withExpressions.length > 0 ? `WITH ${withExpressions.join(', ')}` : '',
    expressions: withExpressions,
    sql,
    rowSql,
    rowSettings,
    params,
    settings: { ...filterSettings, ...settings },
    usesTraces,
  };
}
