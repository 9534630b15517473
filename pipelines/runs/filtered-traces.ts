/**
 * The traces of a filter with conditions on other runs of the trace, such as a `tree_filter` by name. If an index finds
 * these runs, and they are in few traces, a query reads the time ranges of these traces only, and evaluates the
 * conditions once.
 */
import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { lookupSettings } from '../../infra/clickhouse/settings.ts';
import { liveCondition } from '../retention/lifetimes.ts';
import { buildIndexedTraces } from './filter/run-filter.ts';
import type { RunFilterConditions } from './filter/sql-terms.ts';
import { filterSettings } from './filter-clauses.ts';
import type { TimeWindow } from './run-columns.ts';
import { buildProjectsCondition, buildScopeCondition, type KeyCondition, type RunScope } from './run-scope.ts';

const maxTraces = 200;
const hourMicros = 3_600_000_000;
/** Maximum number of hours in which the traces have runs, for each trace and project. */
const maxHours = 1_000;

export interface FilteredTraces {
  /** Traces that satisfy the conditions, by project. */
  readonly traces: readonly TraceHours[];
  /** The conditions of the filter that the traces have not been selected by. */
  readonly others: RunFilterConditions;
}

interface TraceHours {
  readonly project: string;
  readonly trace: string;
  /** First and last hour in which a run of the trace starts, in hours since 1970. */
  readonly first: number;
  readonly last: number;
}

/**
 * Finds the traces. Returns undefined if there are too many, or if no index finds the runs.
 *
 * @throws errors of ClickHouse.
 */
export async function findFilteredTraces(
  clickhouse: ClickHouse,
  scope: RunScope,
  conditions: RunFilterConditions,
): Promise<FilteredTraces | undefined> {
  const projects = buildProjectsCondition(scope);
  const indexed = buildIndexedTraces(conditions, projects.sql, liveCondition);
  if (indexed === undefined) return undefined;
  const traces = await clickhouse.query<TraceHours>({
    name: 'find-traces',
    sql: `SELECT session_id AS project, trace_id AS trace, intDiv(toUnixTimestamp64Micro(min(first_start)), ${hourMicros}) AS first,
            intDiv(toUnixTimestamp64Micro(max(last_start)), ${hourMicros}) AS last
          FROM trace_locations
          WHERE ${projects.sql} AND ${indexed.sql}
          GROUP BY session_id, trace_id
          LIMIT ${maxTraces + 1}`,
    params: { ...projects.params, ...indexed.params },
    settings: { ...filterSettings, ...indexed.settings, ...lookupSettings },
  });
  const hours = traces.reduce((sum, { first, last }) => sum + last - first + 1, 0);
  return traces.length > maxTraces || hours > maxHours ? undefined : { traces, others: indexed.others };
}

/**
 * Restricts a query to the runs of at least one trace in a time window. ClickHouse finds the granules of a list of hours
 * several times faster than those of a list of time ranges.
 */
export function buildTracesCondition(
  scope: RunScope,
  window: TimeWindow,
  traces: FilteredTraces['traces'],
): KeyCondition {
  const range = buildScopeCondition(scope, window);
  const hours = new Set(
    traces.flatMap(({ project, first, last }) =>
      Array.from({ length: last - first + 1 }, (_, at) => `('${project}', toDateTime(${(first + at) * 3_600}, 'UTC'))`),
    ),
  );
  return {
    ...range,
    sql: `${range.sql} AND (session_id, toStartOfHour(start_time)) IN (${[...hours].join(', ')})
      AND trace_id IN {filtered_traces:Array(UUID)}`,
    params: { ...range.params, filtered_traces: [...new Set(traces.map(({ trace }) => trace))] },
  };
}
