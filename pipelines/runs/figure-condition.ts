import { type figureColumns, statedAncestors } from './descendant-figures.ts';
import { isModelCall } from './run-columns.ts';

/**
 * SQL condition on `runs FINAL`: the figure of the run, as `sumDescendants` computes it, satisfies a condition. A run
 * for which no model call states the figure does not. A run sent without dotted_order counts for its parent only, and
 * not for the ancestors of its parent.
 *
 * Of a branch of the trace, the lowest model call that states the figure counts, for itself and all its ancestors.
 *
 * @param condition on `total`, a decimal.
 * @param traceRange conditions on the key of all runs of the traces that the query reads.
 */
export function buildFigureCondition(
  figure: keyof typeof figureColumns,
  condition: string,
  traceRange: string,
): string {
  return `id IN (
    SELECT target FROM (SELECT target, sum(leaf_value) AS total FROM (
      SELECT node, any(value) AS leaf_value, any(ancestors) AS leaf_ancestors FROM (
        SELECT id AS call, assumeNotNull(toDecimal256OrNull(toString(${figure}), 20)) AS value, ${statedAncestors} AS ancestors
        FROM runs FINAL PREWHERE ${traceRange}
        WHERE isNull(deleted_at) AND ${isModelCall} AND isNotNull(toDecimal256OrNull(toString(${figure}), 20)))
      ARRAY JOIN arrayConcat([call], ancestors) AS node, arrayEnumerate(arrayConcat([call], ancestors)) AS position
      GROUP BY node HAVING max(position) = 1)
    ARRAY JOIN arrayConcat([node], leaf_ancestors) AS target
    GROUP BY target) WHERE ${condition})`;
}
