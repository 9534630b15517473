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
import { detailsSql, figureColumns, statedAncestorsSql } from '../descendant-figures.ts';
import { isModelCallSql } from '../run-columns.ts';
import { buildStatRows, type CallRange, findCallRange, type RunSet } from './matching-runs.ts';

export type FigureName = keyof typeof figureColumns;

/** Columns of a row of sums: the total of each figure, and its percentiles as [50, 99]. */
export type FigureRow = { readonly grp: string } & {
  readonly [Name in FigureName]: number | null;
} & { readonly [Name in FigureName as `${Name}_percentiles`]?: readonly [number | null, number | null] };

/** SQL: a cost or one of the details as a decimal; null if it is not one. */
export const toDecimal = (sql: string) => `toDecimal256OrNull(${sql}, 20)`;

const figureNames = Object.keys(figureColumns) as readonly FigureName[];
/** SQL over `runs FINAL`: figures of a model call as numbers. */
export const figureValues = Object.fromEntries(
  figureNames.map((name) => [name, name.endsWith('cost') ? toDecimal(name) : name]),
) as Readonly<Record<FigureName, string>>;
/** SQL over `runs FINAL`: details of a model call as pairs of kind and decimal. */
export const detailPairsSql = `arrayMap(pair -> (pair.1, assumeNotNull(pair.2)), arrayFilter(pair -> isNotNull(pair.2),
  arrayMap(pair -> (pair.1, ${toDecimal('pair.2')}), ${detailsSql})))`;

/** SQL: bit set of the figures whose condition is true. Each figure always has the same bit. */
const buildBitSet = (tests: readonly (readonly [name: FigureName, sql: string])[]) =>
  `toUInt8(${tests.map(([name, sql]) => `(${sql}) * ${2 ** figureNames.indexOf(name)}`).join(' + ')})`;
/** SQL: bit set of the figures of a model call in {@link figureValues} that are not null. */
export const statedSql = buildBitSet(figureNames.map((name) => [name, `isNotNull(${figureValues[name]})`]));

const hasPrice = (kind: 'prompt' | 'completion', element: number) =>
  `isNotNull(${kind}_tokens) AND isNotNull(ranked_price.${element})`;
const buildCostTest = (name: FigureName, hasPriceSql: string) =>
  `if(empty(ranked_${name}), ${hasPriceSql}, isNotNull(${toDecimal(`substring(ranked_${name}, 9)`)}))`;
/**
 * SQL over `runs FINAL`: whether a figure of a model call is not null. Planning these conditions takes half of the time of
 * planning the values of costs, of which `schemas/clickhouse/0001_runs.sql` has the expressions.
 */
const figureTests: Readonly<Record<FigureName, string>> = {
  prompt_tokens: 'isNotNull(prompt_tokens)',
  completion_tokens: 'isNotNull(completion_tokens)',
  total_tokens: 'isNotNull(total_tokens)',
  prompt_cost: buildCostTest('prompt_cost', hasPrice('prompt', 4)),
  completion_cost: buildCostTest('completion_cost', hasPrice('completion', 5)),
  total_cost: buildCostTest('total_cost', `${hasPrice('prompt', 4)} OR ${hasPrice('completion', 5)}`),
};

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
    bits: names.map((name) => figureNames.indexOf(name)),
    storedCovering: `${buildBitSet(names.map((name) => [name, figureTests[name]]))} AS stated`,
    listedValues: names,
    lists: names,
    listedStated: 'stated',
    covering: 'stated',
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
    bits: [0],
    storedCovering: 'usage_details',
    listedValues: ['(arrayJoin(details) AS detail).2'],
    lists: ['details'],
    listedStated: '1',
    covering: 'details',
    kind: 'detail.1',
  };
  return buildSumQuery('run-details', set, selection, ['toString(sum(total_0)) AS total']);
}

interface CallSelection {
  /** Columns of `runs` that `values` use. Planning expands the expressions of costs wherever they are used. */
  readonly columns: readonly string[];
  /** Figures of a model call, as SQL over `columns`. */
  readonly values: readonly string[];
  /** Bit of each figure in `stated`, the bit set of the figures that are not null. */
  readonly bits: readonly number[];
  /** `stated`, or what the kinds are read from, as SQL over `runs FINAL`. */
  readonly storedCovering: string;
  /** `values` and `stated` as SQL over lists in `calls` of `run_facts`, with the lists that they use. */
  readonly listedValues: readonly string[];
  readonly lists: readonly string[];
  readonly listedStated: string;
  readonly covering: string;
  /** If present, a model call has several rows, and only rows of the same kind cover each other. */
  readonly kind?: string;
}

/** Queries for model calls with their figures and, for calls that have ancestors, the figures that these state. */
interface CallQueries {
  readonly calls: string;
  readonly covering: string;
  /** Query for sums of whole traces that are not in `calls`, if there are any. */
  readonly traces?: string;
}

function buildCallQueries(set: RunSet, range: CallRange, selection: CallSelection, inTraces: string): CallQueries {
  const groupSql = set.groupBy?.keepsTracesTogether ? set.groupBy.sql : `''`;
  const kind = selection.kind === undefined ? '' : `, ${selection.kind} AS kind`;
  const select = (values: readonly string[]) =>
    `trace_id, id, ancestors, ${groupSql} AS call_grp ${kind}, ${values.map((sql, index) => `${sql} AS value_${index}`).join(', ')}`;
  const storedRows = (columns: readonly string[]) =>
    `(SELECT trace_id, ${statedAncestorsSql} AS ancestors, ${columns.join(', ')} FROM runs FINAL PREWHERE ${range.sql} ${inTraces}
      WHERE ${[...range.values, isModelCallSql].join(' AND ')})`;
  const stored = `SELECT ${select(selection.values)} FROM ${storedRows(['session_id', 'id', ...selection.columns])}`;
  const selectCovering = (
    details: string,
    rows: string,
  ) => `SELECT trace_id, ancestors, ${selection.listedStated} AS is_stated
    ${selection.kind === undefined ? '' : `, arrayJoin(${details}).1 AS kind`} FROM ${rows} WHERE notEmpty(ancestors)`;
  const storedCovering = selectCovering(detailPairsSql, storedRows([selection.storedCovering]));
  if (range.facts === undefined) return { calls: stored, covering: storedCovering };
  const join = (lists: readonly string[]) => lists.map((name) => `\`calls.${name}\` AS ${name}`).join(', ');
  const rowCondition = (list: string) =>
    selection.kind === undefined ? '' : `AND arrayExists(pairs -> notEmpty(pairs), \`${list}.details\`)`;
  const listed = `SELECT ${select(selection.listedValues)}
    FROM (SELECT * FROM run_facts FINAL WHERE ${range.facts} ${rowCondition('calls')})
    ARRAY JOIN ${join(['trace_id', 'id', 'ancestors', ...selection.lists])}, \`calls.expires_at\` AS call_expires_at
    WHERE call_expires_at > now()`;
  const listedCovering = selectCovering(
    'details',
    `(SELECT * FROM run_facts FINAL WHERE ${range.facts} AND arrayExists(ids -> notEmpty(ids), \`calls.ancestors\`))
    ARRAY JOIN ${join(['trace_id', 'ancestors', selection.covering])}`,
  );
  const traceLists = selection.lists.map((name) => `\`traces.${name}\` AS ${name}`).join(', ');
  const traces = `SELECT ${groupSql} AS grp ${kind}, trace_id AS top, ${selection.listedValues.map((sql, index) => `${sql} AS total_${index}`).join(', ')}
    FROM (SELECT * FROM run_facts FINAL WHERE ${range.facts} ${rowCondition('traces')})
    ARRAY JOIN \`traces.id\` AS trace_id, ${traceLists}, \`traces.expires_at\` AS trace_expires_at
    WHERE trace_expires_at > now()`;
  return range.isInFacts
    ? { calls: listed, covering: listedCovering, traces }
    : { calls: `${listed} UNION ALL ${stored}`, covering: `${listedCovering} UNION ALL ${storedCovering}`, traces };
}

function buildSumQuery(name: string, set: RunSet, selection: CallSelection, columns: readonly string[]): Query {
  const { bits, kind } = selection;
  const range = findCallRange(set);
  const isInFacts = range.facts !== undefined;
  const { sql: rows, ...matching } = buildStatRows(isInFacts ? set : { ...set, dirtyHours: undefined }, [
    'id',
    'trace_id',
  ]);
  const matchingSql = `SELECT id AS matching_id, trace_id AS matching_trace, grp FROM (${rows})`;
  const inTraces =
    range.counted === 'every' || isInFacts ? '' : `AND trace_id IN (SELECT matching_trace FROM (${matchingSql}))`;
  const { calls, covering, traces } = buildCallQueries(set, range, selection, inTraces);
  const kindSql = kind === undefined ? '' : ', kind';
  const leaves = `SELECT trace_id, id, ancestors, call_grp ${kindSql},
      ${bits.map((bit, index) => `if(bitTest(below, ${bit}), NULL, value_${index}) AS leaf_${index}`).join(', ')}
    FROM (${calls}) AS calls
    LEFT ANY JOIN (
      SELECT trace_id AS covered_trace, arrayJoin(ancestors) AS covered_id ${kind === undefined ? '' : ', kind AS covered_kind'}, groupBitOr(toUInt8(is_stated)) AS below
      FROM (${covering}) GROUP BY covered_trace, covered_id ${kind === undefined ? '' : ', covered_kind'}) AS covered
    ON trace_id = covered_trace AND id = covered_id ${kind === undefined ? '' : 'AND kind = covered_kind'}`;
  const sums = bits.map((_bit, index) => `sum(leaf_${index}) AS total_${index}`).join(', ');
  const totals = bits.map((_bit, index) => `total_${index}`).join(', ');
  const picked = bits.map((_bit, index) => `any(leaf_${index}) AS leaf_${index}`).join(', ');
  // If all runs of a trace are in one group, the matching runs are not needed to find the group of a call. Without groups,
  // the key is the trace alone.
  const isByCall = set.groupBy === undefined || set.groupBy.keepsTracesTogether === true;
  const [grp, grpKey] = set.groupBy === undefined ? [`''`, ''] : ['call_grp', 'call_grp, '];
  const byTrace = `SELECT ${grp} AS grp ${kindSql}, trace_id AS top, ${sums} FROM (${leaves}) GROUP BY ${grpKey}top ${kindSql}
    ${traces === undefined ? '' : `UNION ALL ${traces}`}`;
  const topQueries = {
    every: byTrace,
    trace: isByCall
      ? !isInFacts
        ? byTrace
        : `SELECT sums.* FROM (${byTrace}) AS sums LEFT SEMI JOIN (SELECT matching_trace FROM (${matchingSql})) AS matching ON top = matching_trace`
      : `SELECT matching.grp AS grp ${kindSql}, top, ${totals} FROM (${byTrace}) AS sums
      INNER JOIN (SELECT DISTINCT matching_trace, grp FROM (${matchingSql})) AS matching ON top = matching_trace`,
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
