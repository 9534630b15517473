import type { ClickHouseSettings } from '@clickhouse/client';
import type { QueryParameter } from '../../../infra/clickhouse/clickhouse.ts';
import { lookupSettings } from '../../../infra/clickhouse/settings.ts';
import { isRunlakeError } from '../../../infra/errors/runlake-error.ts';
import { allTimes, isRootSql } from '../run-columns.ts';
import { checkRunFilter } from './check-filter.ts';
import { getField } from './fields.ts';
import {
  generateGroups,
  generateRequiredConditions,
  type IndexedCondition,
  ignoreOtherIndexes,
  writeIndexedCondition,
} from './indexed-condition.ts';
import { parseFilter } from './parse-filter.ts';
import { FilterContext, type RunCondition, type RunFilterConditions } from './sql-terms.ts';
import { addParameterName } from './syntax.ts';
import { writeCondition } from './write-sql.ts';

/**
 * Parses and checks an expression.
 *
 * @param parameter Name of the request parameter, for the error.
 * @throws INVALID_FILTER
 */
export function parseRunFilter(parameter: string, text: string): RunCondition {
  try {
    return checkRunFilter(parseFilter(text));
  } catch (error) {
    throw addParameterName(error, parameter);
  }
}

/** Request parameters that contain an expression, each with the runs that the expression applies to. */
const expressionParameters = {
  filter: 'run',
  search_filter: 'run',
  trace_filter: 'trace',
  tree_filter: 'tree',
} as const satisfies Record<string, keyof RunFilterConditions>;

type ExpressionParameter = keyof typeof expressionParameters;
const parameterNames = Object.keys(expressionParameters) as ExpressionParameter[];

/** Parameters of a request; absent and empty parameters add no condition. */
export type RunFilterParameters = Readonly<Partial<Record<ExpressionParameter | 'query', string | null>>>;

/**
 * Parses the filters of a request. `query` is a text to search for.
 *
 * @returns undefined if the request has no filters.
 * @throws INVALID_FILTER
 */
export function parseRunFilters(request: RunFilterParameters): RunFilterConditions | undefined {
  const conditions: Record<keyof RunFilterConditions, RunCondition[]> = { run: [], trace: [], tree: [] };
  for (const name of parameterNames) {
    const text = request[name];
    if (text) conditions[expressionParameters[name]].push(parseRunFilter(name, text));
  }
  if (request.query) conditions.run.push({ kind: 'search', field: undefined, text: request.query });
  return Object.values(conditions).every((list) => list.length === 0) ? undefined : conditions;
}

/** Lists the invalid filters of a request, each with the message of the error that {@link parseRunFilters} throws. */
export function checkRunFilters(request: RunFilterParameters): { field: string; message: string }[] {
  return parameterNames.flatMap((field) => {
    try {
      parseRunFilters({ [field]: request[field] });
      return [];
    } catch (error) {
      if (isRunlakeError(error) && error.code === 'INVALID_FILTER') return { field, message: error.message };
      throw error;
    }
  });
}

export interface FilterSql {
  /** Conditions on `runs FINAL`, joined by AND. */
  readonly sql: readonly string[];
  /**
   * A condition on rows of `runs` without FINAL: at least one stored row of every matching run satisfies it. Undefined
   * if no such condition is faster to evaluate than the filter.
   */
  readonly rowSql: string | undefined;
  /** Settings of a query with that condition. */
  readonly rowSettings: ClickHouseSettings;
  /** Expressions that the conditions use, for the WITH clause of the query. */
  readonly expressions: readonly string[];
  readonly params: Readonly<Record<string, QueryParameter>>;
  /** Settings that the query must have. */
  readonly settings: ClickHouseSettings;
  /** Whether the conditions contain the trace range. */
  readonly usesTraces: boolean;
}

/**
 * Writes the SQL of conditions. `projects` is the condition on the projects. `traceRange` contains conditions on the
 * key of `runs` that include all runs of the traces that the query reads. `live` is the same as in {@link
 * FilterContext}.
 */
export function buildFilterSql(
  { run, trace, tree }: RunFilterConditions,
  projects: string,
  traceRange: string,
  live: string,
): FilterSql {
  const context = new FilterContext(traceRange, live);
  const buildTraceCondition = (condition: RunCondition, more: readonly string[] = []) =>
    writeTraceCondition(condition, [live, ...more], projects, context);
  const indexed = writeIndexedCondition(run, context);
  const traceConditions = [
    ...tree.map((each) => buildTraceCondition(each)),
    ...trace.map((each) => buildTraceCondition(each, [isRootSql])),
  ];
  const selectiveSql = indexed?.sql ?? traceConditions[0] ?? writeFeedbackCondition(run, context);
  return {
    sql: [...(indexed ? [indexed.sql] : []), ...run.map((each) => writeCondition(each, context)), ...traceConditions],
    rowSql: selectiveSql ?? writeSearchCondition(run, context),
    rowSettings: selectiveSql === undefined ? {} : lookupSettings,
    expressions: context.expressions,
    params: context.params,
    settings: ignoreOtherIndexes(indexed),
    usesTraces: context.usesTraces,
  };
}

/** Writes a condition on `trace_id`: a run of the trace satisfies `condition` and `more`. */
function writeTraceCondition(
  condition: RunCondition,
  more: readonly string[],
  projects: string,
  context: FilterContext,
): string {
  const query = context.writeQuery(() => {
    const indexed = writeIndexedCondition([condition], context);
    const range = indexed === undefined ? context.traceRange : buildRunsCondition(indexed, projects);
    const conditions = [...more, writeCondition(condition, context)];
    return `SELECT trace_id FROM runs FINAL PREWHERE ${range} WHERE ${conditions.join(' AND ')}`;
  });
  return `trace_id IN (${query})`;
}

export interface IndexedTraces extends Pick<FilterSql, 'params' | 'settings'> {
  /** Conditions on `trace_id`, joined by AND. */
  readonly sql: string;
  /** The conditions of the filter that `sql` does not contain. */
  readonly others: RunFilterConditions;
}

/**
 * Writes the conditions on other runs of the trace whose runs an index finds in any time range; undefined if there are
 * none. `projects` and `live` are the same as in {@link buildFilterSql}.
 */
export function buildIndexedTraces(
  { run, trace, tree }: RunFilterConditions,
  projects: string,
  live: string,
): IndexedTraces | undefined {
  const context = new FilterContext('', live);
  const sql: string[] = [];
  /** Writes the condition if it is indexed, and returns whether it is not. */
  const remains = (condition: RunCondition, more: readonly string[]) => {
    if (writeIndexedCondition([condition], new FilterContext('', live)) === undefined) return true;
    sql.push(writeTraceCondition(condition, [live, ...more], projects, context));
    return false;
  };
  const others = {
    run,
    trace: trace.filter((condition) => remains(condition, [isRootSql])),
    tree: tree.filter((condition) => remains(condition, [])),
  };
  // Sums of figures over descendants need a time range.
  if (sql.length === 0 || context.usesTraces) return undefined;
  return { sql: sql.join(' AND '), params: context.params, settings: ignoreOtherIndexes(undefined), others };
}

/**
 * Builds a condition on the key for all runs with a stored row that an index finds. It has no time range, because
 * reading all times through the index is faster than first finding the times of the traces.
 */
function buildRunsCondition(indexed: IndexedCondition, projects: string): string {
  const { ignore_data_skipping_indices: ignored } = ignoreOtherIndexes(indexed);
  return `${projects} AND (session_id, start_time, trace_id, id) IN (SELECT session_id, start_time, trace_id, id FROM runs
    WHERE ${projects} AND ${indexed.sql} SETTINGS ignore_data_skipping_indices = '${ignored}')`;
}

/**
 * Writes a required condition on feedback; undefined if there is none. It and a search are the only conditions that are
 * cheap to evaluate without an index.
 */
function writeFeedbackCondition(conditions: readonly RunCondition[], context: FilterContext): string | undefined {
  for (const group of generateGroups(conditions)) {
    const terms = group.filter((term) => term.kind === 'compare' && getField(term.field).family === 'feedback');
    if (terms.some((term) => term.kind === 'compare' && term.operator !== 'neq'))
      return writeCondition({ kind: 'and', terms }, context);
  }
  return undefined;
}

/** Writes a required search, which reads the texts of all runs; undefined if there is none. */
function writeSearchCondition(conditions: readonly RunCondition[], context: FilterContext): string | undefined {
  const search = [...generateRequiredConditions(conditions)].find(({ kind }) => kind === 'search');
  return search && writeCondition(search, context);
}

/** Returns the id that the conditions require for a field; undefined if they do not require one. */
export function findRequiredId(
  conditions: RunFilterConditions | undefined,
  field: 'id' | 'trace_id' | 'parent_run_id',
): string | undefined {
  for (const condition of generateRequiredConditions(conditions?.run ?? [])) {
    if (condition.kind === 'compare' && condition.field === field && condition.operator === 'eq' && condition.value)
      return String(condition.value);
  }
  return undefined;
}

/**
 * Returns the range of start times that contains all matching runs. Start times are as in responses, and both ends are
 * inclusive.
 */
export function findStartRange(conditions: RunFilterConditions | undefined): { from: number; until: number } {
  const range = { from: allTimes.fromMicros, until: allTimes.untilMicrosExclusive };
  for (const condition of generateRequiredConditions(conditions?.run ?? [])) {
    if (condition.kind !== 'compare' || condition.field !== 'start_time' || typeof condition.value !== 'number')
      continue;
    const { operator, value } = condition;
    if (operator === 'eq' || operator === 'gt' || operator === 'gte') range.from = Math.max(range.from, value);
    if (operator === 'eq' || operator === 'lt' || operator === 'lte') range.until = Math.min(range.until, value);
  }
  return range;
}
