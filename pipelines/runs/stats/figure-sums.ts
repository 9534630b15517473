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
 *   1. `calls` are the model calls of the range that state a figure.
 *   2. `covered` contains, by run, the figures that calls below the run state.
 *   3. The figures of a call that are not covered are summed by the topmost matching run.
 */
import type { Query } from '../../../infra/clickhouse/clickhouse.ts';
import { detailsSql, type figureColumns, statedAncestorsSql } from '../descendant-figures.ts';
import { isModelCallSql } from '../run-columns.ts';
import { buildStatRows, findCallRange, type RunSet } from './matching-runs.ts';

export type FigureName = keyof typeof figureColumns;

/** Columns of a row of sums: the total of each figure, and its percentiles as [50, 99]. */
export type FigureRow = { readonly grp: string } & {
  readonly [Name in FigureName]: number | null;
} & { readonly [Name in FigureName as `${Name}_percentiles`]: readonly [number | null, number | null] };

/** SQL: a cost or one of the details as a decimal; null if it is not one. */
export const toDecimal = (sql: string) => `toDecimal256OrNull(${sql}, 20)`;
const valueSql = (name: FigureName) => (name.endsWith('cost') ? toDecimal(name) : name);

/** Builds the query for the sums of the figures by group. */
export function buildFigureQuery(set: RunSet, figures: readonly FigureName[]): Query {
  const values = figures.map((name) => valueSql(name));
  const columns = figures.flatMap((name, index) => [
    `sum(total_${index}) AS ${name}`,
    `quantilesExactInclusive(0.5, 0.99)(toFloat64(total_${index})) AS ${name}_percentiles`,
  ]);
  return buildSumQuery(
    'run-figures',
    set,
    {
      values,
      factValues: figures,
      factLists: figures,
      condition: `(${figures.map((name) => `isNotNull(${name})`).join(' OR ')})`,
    },
    columns,
  );
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
  const pairs = `arrayMap(pair -> (pair.1, ${toDecimal('pair.2')}), ${detailsSql})`;
  const calls = {
    values: [`(arrayJoin(arrayFilter(pair -> isNotNull(pair.2), ${pairs})) AS detail).2`],
    factValues: ['(arrayJoin(details) AS detail).2'],
    factLists: ['details'],
    kind: 'detail.1',
    condition: 'isNotNull(usage_details)',
  };
  return buildSumQuery('run-details', set, calls, ['toString(sum(total_0)) AS total']);
}

interface CallSelection {
  /** Figures of a model call, as SQL over `runs FINAL`. */
  readonly values: readonly string[];
  /** The same over the lists `calls` of `run_facts`, and the names of these lists. */
  readonly factValues: readonly string[];
  readonly factLists: readonly string[];
  /** If present, a model call has several rows, and only rows of the same kind cover each other. */
  readonly kind?: string;
  readonly condition: string;
}

function buildSumQuery(
  name: string,
  set: RunSet,
  { values, factValues, factLists, kind, condition }: CallSelection,
  columns: readonly string[],
): Query {
  const range = findCallRange(set);
  const { sql: rows, ...matching } = buildStatRows(set, ['id', 'trace_id']);
  const matchingSql = `SELECT id AS matching_id, trace_id AS matching_trace, grp FROM (${rows})`;
  const groupSql = set.groupBy?.keepsTracesTogether ? set.groupBy.sql : `''`;
  const kindSql = kind === undefined ? '' : ', kind';
  const inTraces = range.counted === 'every' ? '' : `AND trace_id IN (SELECT matching_trace FROM (${matchingSql}))`;
  const selectCalls = (ancestors: string, sqlOfValues: readonly string[]) =>
    `SELECT trace_id, id, ${ancestors} AS ancestors, ${groupSql} AS call_grp
      ${kind === undefined ? '' : `, ${kind} AS kind`}, ${sqlOfValues.map((sql, index) => `${sql} AS value_${index}`).join(', ')}`;
  const storedCalls = `${selectCalls(statedAncestorsSql, values)}
    FROM runs FINAL PREWHERE ${range.sql} ${inTraces}
    WHERE ${[...range.values, isModelCallSql, condition].join(' AND ')}`;
  const lists = ['trace_id', 'id', ...factLists].map((name) => `\`calls.${name}\` AS ${name}`);
  const listedCalls = `${selectCalls('listed_ancestors', factValues)}
    FROM run_facts FINAL ARRAY JOIN ${lists.join(', ')}, \`calls.ancestors\` AS listed_ancestors, \`calls.expires_at\` AS call_expires_at
    WHERE ${range.facts} AND call_expires_at > now()`;
  const calls =
    range.facts === undefined ? storedCalls : range.isInFacts ? listedCalls : `${listedCalls} UNION ALL ${storedCalls}`;
  const stated = values.map((_sql, index) => `isNotNull(value_${index}) * ${2 ** index}`).join(' + ');
  const leaves = `SELECT trace_id, id, ancestors, call_grp ${kindSql},
      ${values.map((_sql, index) => `if(bitTest(below, ${index}), NULL, value_${index}) AS leaf_${index}`).join(', ')}
    FROM (${calls}) AS calls
    LEFT ANY JOIN (
      SELECT arrayJoin(ancestors) AS covered_id ${kind === undefined ? '' : ', kind AS covered_kind'}, groupBitOr(toUInt8(${stated})) AS below
      FROM (${calls}) WHERE notEmpty(ancestors) GROUP BY covered_id ${kind === undefined ? '' : ', covered_kind'}) AS covered
    ON id = covered_id ${kind === undefined ? '' : 'AND kind = covered_kind'}`;
  const sums = values.map((_sql, index) => `sum(leaf_${index}) AS total_${index}`).join(', ');
  const picked = values.map((_sql, index) => `any(leaf_${index}) AS leaf_${index}`).join(', ');
  const topQueries = {
    every: `SELECT call_grp AS grp ${kindSql}, trace_id AS top, ${sums} FROM (${leaves}) GROUP BY grp, top ${kindSql}`,
    trace: `SELECT grp ${kindSql}, trace_id AS top, ${sums}
      FROM (${leaves}) AS leaves INNER JOIN (SELECT DISTINCT matching_trace, grp FROM (${matchingSql})) AS matching ON trace_id = matching_trace
      GROUP BY grp, top ${kindSql}`,
    path: `SELECT grp ${kindSql}, top, ${sums} FROM (
        SELECT grp ${kindSql}, id, argMin(node, position) AS top, ${picked}
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
    ...(externalTable && { externalTable }),
    settings: matching.settings,
  };
}
