/**
 * Tokens and costs of a set of runs.
 *
 * As in a list of runs, a model call counts unless a call below it states the same figure
 * (`pipelines/runs/descendant-figures.ts`). Each call counts once in a group: it is assigned to its topmost matching
 * ancestor, or to itself. The total of a figure is the sum over the runs that calls are assigned to; the percentiles
 * are computed over those of these runs that have the figure. For a run sent without dotted_order, only the parent and
 * the root of the trace are known as ancestors. If the set is limited only by projects and a start time, the calls of a
 * trace count as one run for the percentiles, even if the root of the trace is not in the set.
 *
 *   1. `calls` are the model calls of the range.
 *   2. Each call has a row for itself and one for each ancestor, so that one aggregation by run finds the figures that calls
 *      below the run state. A join would read the calls twice.
 *   3. The figures of a call that no call below it states are summed by the topmost matching run.
 */
import type { Query } from '../../../infra/clickhouse/clickhouse.ts';
import { costExpressions, selectColumn } from '../../costs/cost-sql.ts';
import { buildNodesSql, detailsSql, figureColumns, statedAncestorsSql } from '../descendant-figures.ts';
import { isModelCallSql } from '../run-columns.ts';
import { buildStatRows, type CallRange, findCallRange, type RunSet } from './matching-runs.ts';

export type FigureName = keyof typeof figureColumns;

/** Columns of a row of sums: the total of each figure, and its percentiles as [50, 99]. */
export type FigureRow = { readonly grp: string } & {
  readonly [Name in FigureName]: number | null;
} & { readonly [Name in FigureName as `${Name}_percentiles`]?: readonly [number | null, number | null] };

/** SQL: a cost or one of the details as a decimal; null if it is not one. */
const toDecimal = (sql: string) => `toDecimal256OrNull(${sql}, 20)`;

const figureNames = Object.keys(figureColumns) as readonly FigureName[];
/** SQL over the columns that {@link selectColumn} selects: figures of a model call as numbers. */
export const figureValues = Object.fromEntries(
  figureNames.map((name) => [name, name.endsWith('cost') ? toDecimal(name) : name]),
) as Readonly<Record<FigureName, string>>;
/** SQL over the column `usage_details`: details of a model call as pairs of kind and decimal. */
export const detailPairsSql = `arrayMap(pair -> (pair.1, assumeNotNull(pair.2)), arrayFilter(pair -> isNotNull(pair.2),
  arrayMap(pair -> (pair.1, ${toDecimal('pair.2')}), ${detailsSql})))`;

/** Builds the query for the sums of the figures by group, with the percentiles of some. */
export function buildFigureQuery(
  set: RunSet,
  figures: readonly { readonly figure: FigureName; readonly hasPercentiles: boolean }[],
): Query {
  const columns = figures.flatMap(({ figure, hasPercentiles }, index) => [
    `sum(total_${index}) AS ${figure}`,
    ...(hasPercentiles
      ? [`quantilesExactInclusive(0.5, 0.99)(toFloat64(total_${index})) AS ${figure}_percentiles`]
      : []),
  ]);
  const names = figures.map(({ figure }) => figure);
  const selection: CallSelection = {
    columns: names,
    values: names.map((name) => figureValues[name]),
    lists: names,
    listedValues: names,
  };
  return buildSumQuery('run-figures', set, selection, columns);
}

export interface DetailRow {
  readonly grp: string;
  /** Name of the details, followed by a dot and the key. */
  readonly kind: string;
  /** Total as a decimal in text form. */
  readonly total: string;
}

/** Builds the query for the sums of the details by group. */
export function buildDetailQuery(set: RunSet): Query {
  const selection: CallSelection = {
    columns: ['usage_details'],
    values: [`(arrayJoin(${detailPairsSql}) AS detail).2`],
    lists: ['details'],
    listedValues: ['(arrayJoin(details) AS detail).2'],
    kind: 'detail.1',
  };
  return buildSumQuery('run-details', set, selection, ['toString(sum(total_0)) AS total']);
}

interface CallSelection {
  /** Columns that `values` use, see {@link selectColumn}. */
  readonly columns: readonly string[];
  /** Figures of a model call, as SQL over `columns`. */
  readonly values: readonly string[];
  /** Lists of `run_facts` that `listedValues` use. */
  readonly lists: readonly string[];
  /** `values` as SQL over `lists`. */
  readonly listedValues: readonly string[];
  /** If present, a model call has several rows, and only rows of the same kind cover each other. */
  readonly kind?: string;
}

interface CallQueries {
  /** Query for model calls with their figures. */
  readonly calls: string;
  /** Query for sums of whole traces that are not in `calls`, if there are any. */
  readonly traces?: string;
}

function buildCallQueries(set: RunSet, range: CallRange, selection: CallSelection, inTraces: string): CallQueries {
  const { columns, values, lists, listedValues } = selection;
  const groupSql = set.groupBy?.keepsTracesTogether ? set.groupBy.sql : `''`;
  const kind = selection.kind === undefined ? '' : `, ${selection.kind} AS kind`;
  const select = (sqls: readonly string[]) =>
    `trace_id, id, ancestors, ${groupSql} AS call_grp ${kind}, ${sqls.map((sql, index) => `${sql} AS value_${index}`).join(', ')}`;
  const stored = `SELECT ${select(values)}
    FROM (WITH ${costExpressions}
      SELECT trace_id, ${statedAncestorsSql} AS ancestors, session_id, id, ${columns.map(selectColumn).join(', ')}
      FROM runs FINAL PREWHERE ${range.sql} ${inTraces}
      WHERE ${[...range.values, isModelCallSql].join(' AND ')})`;
  if (range.facts === undefined) return { calls: stored };
  /** Rows of `run_facts` joined with the elements of one of its lists, `calls` or `traces`. */
  const join = (list: string, names: readonly string[]) => `(SELECT * FROM run_facts FINAL WHERE ${range.facts}
      ${selection.kind === undefined ? '' : `AND arrayExists(pairs -> notEmpty(pairs), \`${list}.details\`)`})
    ARRAY JOIN ${names.map((name) => `\`${list}.${name}\` AS ${name}`).join(', ')}, \`${list}.expires_at\` AS listed_expires_at
    WHERE listed_expires_at > now()`;
  const listed = `SELECT ${select(listedValues)} FROM ${join('calls', ['trace_id', 'id', 'ancestors', ...lists])}`;
  const traces = `SELECT ${groupSql} AS grp ${kind}, id AS top, ${listedValues.map((sql, index) => `${sql} AS total_${index}`).join(', ')}
    FROM ${join('traces', ['id', ...lists])}`;
  return { calls: range.isInFacts ? listed : `${listed} UNION ALL ${stored}`, traces };
}

function buildSumQuery(name: string, set: RunSet, selection: CallSelection, columns: readonly string[]): Query {
  const { kind } = selection;
  const range = findCallRange(set);
  const isInFacts = range.facts !== undefined;
  const { sql: rows, ...matching } =
    set.countedTraces ?? buildStatRows(isInFacts ? set : { ...set, dirtyHours: undefined }, ['id', 'trace_id']);
  const matchingSql = `SELECT ${set.countedTraces ? '' : 'id AS matching_id, '}trace_id AS matching_trace, grp FROM (${rows})`;
  const inTraces =
    range.counted === 'every' || isInFacts ? '' : `AND trace_id IN (SELECT matching_trace FROM (${matchingSql}))`;
  const { calls, traces } = buildCallQueries(set, range, selection, inTraces);
  const kindSql = kind === undefined ? '' : ', kind';
  /** Writes an expression for each value; # is the number of the value. */
  const each = (sql: string, separator = ', ') =>
    selection.values.map((_value, index) => sql.replaceAll('#', String(index))).join(separator);
  // The bit set is computed before the array join: ClickHouse plans the values once.
  const leaves = `SELECT trace_id, id, ancestors, call_grp ${kindSql}, ${each('if(bitTest(covered, #), NULL, own_#) AS leaf_#')}
    FROM (
      SELECT trace_id, node.1 AS id ${kindSql}, any(call_grp) AS call_grp, anyIf(node.3, node.2) AS ancestors,
        ${each('anyIf(value_#, node.2) AS own_#')}, groupBitOrIf(stated, NOT node.2) AS covered
      FROM (SELECT *, toUInt8(${each('bitShiftLeft(isNotNull(value_#), #)', ' + ')}) AS stated, ${buildNodesSql('id')} AS nodes FROM (${calls}))
      ARRAY JOIN nodes AS node
      GROUP BY trace_id, node.1 ${kindSql} HAVING max(node.2))`;
  const sums = each('sum(leaf_#) AS total_#');
  // If all runs of a trace are in one group, the matching runs are not needed to find the group of a call. Without groups,
  // the key is the trace alone.
  const isByCall = !set.countedTraces && (set.groupBy === undefined || set.groupBy.keepsTracesTogether === true);
  const [grp, grpKey] = set.groupBy === undefined ? [`''`, ''] : ['call_grp', 'call_grp, '];
  const byTrace = `SELECT ${grp} AS grp ${kindSql}, trace_id AS top, ${sums} FROM (${leaves}) GROUP BY ${grpKey}top ${kindSql}
    ${traces === undefined ? '' : `UNION ALL ${traces}`}`;
  const groupsOfTraces = set.countedTraces
    ? `SELECT matching_trace, min(grp) AS grp FROM (${matchingSql}) GROUP BY matching_trace`
    : `SELECT DISTINCT matching_trace, grp FROM (${matchingSql})`;
  const topQueries = {
    every: byTrace,
    trace: isByCall
      ? !isInFacts
        ? byTrace
        : `SELECT sums.* FROM (${byTrace}) AS sums LEFT SEMI JOIN (SELECT matching_trace FROM (${matchingSql})) AS matching ON top = matching_trace`
      : `SELECT matching.grp AS grp ${kindSql}, top, ${each('total_#')} FROM (${byTrace}) AS sums
      INNER JOIN (${groupsOfTraces}) AS matching ON top = matching_trace`,
    path: `SELECT grp ${kindSql}, top, ${sums} FROM (
        SELECT grp ${kindSql}, id, argMin(node, position) AS top, ${each('any(leaf_#) AS leaf_#')}
        FROM (SELECT *, node, position FROM (${leaves})
          ARRAY JOIN arrayConcat(ancestors, [id]) AS node, arrayEnumerate(arrayConcat(ancestors, [id])) AS position) AS nodes
        INNER JOIN (${matchingSql}) AS matching ON node = matching_id
        GROUP BY grp, id ${kindSql})
      GROUP BY grp, top ${kindSql}`,
  };
  const { externalTable = range.externalTable } = matching;
  return {
    name,
    sql: `SELECT grp ${kindSql}, ${columns.join(', ')} FROM (${topQueries[range.counted]}) GROUP BY grp ${kindSql}`,
    params: { ...range.params, ...matching.params },
    externalTable,
    settings: matching.settings,
  };
}
