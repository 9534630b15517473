import { FilterContext } from './filter/sql-terms.ts';
import { listThreadFields, type ThreadCondition, writeThreadCondition } from './filter/thread-filter.ts';
import { filterSettings } from './filter-clauses.ts';
import { runColumns, startedAtMicros } from './run-columns.ts';
import type { ThreadSelection } from './run-scope.ts';
import { buildFigureQuery } from './stats/figure-sums.ts';
import { buildMatchingRuns, type RunSet } from './stats/matching-runs.ts';

/** Begins the names of the parameters, because the query around the selection has parameters of the same names. */
const prefix = 'threads_';

/**
 * Builds the selection of the threads whose summary satisfies a condition.
 *
 * @param set The root runs that count in the summaries, grouped by thread.
 */
export function buildThreadSelection(set: RunSet, condition: ThreadCondition): ThreadSelection {
  const used = listThreadFields(condition);
  const context = new FilterContext('', '');
  const conditionSql = writeThreadCondition(condition, context);
  const turns = buildMatchingRuns(set, [
    `${startedAtMicros} AS started`,
    `${runColumns.endedAtMicros} AS ended`,
    'isNotNull(error) AS failed',
  ]);
  const summaries = `SELECT assumeNotNull(grp) AS thread_id, count() AS turn_count, countIf(failed) AS num_errored_turns,
      max(ended) - min(started) AS thread_duration,
      round(quantileExactInclusive(0.5)(ended - started)) AS trace_latency_p50,
      round(quantileExactInclusive(0.99)(ended - started)) AS trace_latency_p99
    FROM (${turns.sql}) GROUP BY thread_id`;
  const figures = (['total_tokens', 'total_cost'] as const).filter((figure) => used.has(figure));
  const sums =
    figures.length === 0
      ? undefined
      : buildFigureQuery(
          set,
          figures.map((figure) => ({ figure, hasPercentiles: false })),
        );
  const columns = figures.map((figure) => {
    const sum = `toFloat64(sums.${figure})`;
    return `${figure === 'total_tokens' ? `ifNull(${sum}, 0)` : sum} AS ${figure}`;
  });
  const rows = sums
    ? `SELECT summaries.*, ${columns.join(', ')} FROM (${summaries}) AS summaries LEFT ANY JOIN (${sums.sql}) AS sums ON thread_id = sums.grp`
    : summaries;
  const params = { ...turns.params, ...sums?.params, ...context.params };
  const names = Object.keys(params);
  return {
    sql: `SELECT thread_id FROM (${rows}) WHERE ${conditionSql}`.replace(/\{(\w+):/g, (placeholder, name: string) =>
      names.includes(name) ? `{${prefix}${name}:` : placeholder,
    ),
    params: Object.fromEntries(Object.entries(params).map(([name, value]) => [`${prefix}${name}`, value])),
    settings: filterSettings,
  };
}
