/**
 * Sums the tokens and costs of the model calls among the descendants of runs.
 *
 * A figure is a token count, a cost, or one key of their details. The value for a run is the sum over its descendants
 * that report the figure and have no descendants that report it; a run without such descendants has its own value. A
 * model call inside another call that states the same usage is therefore counted once. Sums are computed on read from
 * merged rows of model calls, so that arrival order, redelivery and patches cannot make them wrong.
 *
 *   1. `trace_locations` gives the time ranges that contain the model calls of the traces. Most pages of traces without
 *      model calls end here.
 *   2. One query over these ranges sums the figures that the model calls report, by ancestor. Ancestors are the ids in
 *      dotted_order.
 *   3. Runs sent without dotted_order only have a parent. If there are any, their ancestors are found by walking their
 *      traces, and the query is repeated for these traces with the ancestors of each parent.
 */
import type { ClickHouseSettings } from '@clickhouse/client';
import type { ClickHouse, Query, QueryParameter } from '../../infra/clickhouse/clickhouse.ts';
import { lookupSettings } from '../../infra/clickhouse/settings.ts';
import { costExpressions, selectColumn } from '../costs/cost-sql.ts';
import { TraceTree } from './dotted-orders.ts';
import { isModelCallSql, type RunColumn } from './run-columns.ts';
import type { RunScope } from './run-scope.ts';
import { readMembersByTrace, type TraceMember } from './trace-facts.ts';

/** Token and cost fields of a run, each with the column of the run's own value. */
export const figureColumns = {
  prompt_tokens: 'promptTokens',
  completion_tokens: 'completionTokens',
  total_tokens: 'totalTokens',
  prompt_cost: 'promptCost',
  completion_cost: 'completionCost',
  total_cost: 'totalCost',
} as const satisfies Record<string, RunColumn>;

/** Details by kind of token; each key of a details object is a separate figure. */
export const detailNames = [
  'prompt_token_details',
  'completion_token_details',
  'prompt_cost_details',
  'completion_cost_details',
] as const;

/**
 * Sums by figure, as decimals in text form. A figure is either a name of {@link figureColumns}, or a name of {@link
 * detailNames} followed by a dot and a key.
 */
export type Figures = ReadonlyMap<string, string>;

export interface FigureRequest {
  readonly scope: RunScope;
  /**
   * Right side of `IN` for the traces: a list, or a subquery on `{stored_runs:Identifier}`. `targets` is the right side of `IN`
   * for the runs whose figures are requested.
   */
  readonly traces: string;
  readonly targets: string;
  readonly params: Readonly<Record<string, QueryParameter>>;
  /** Whether details are summed too. */
  readonly withDetails: boolean;
  /** Settings of the query on `runs`. */
  readonly settings?: ClickHouseSettings;
  readonly signal?: AbortSignal | undefined;
}

/** Time ranges with a smaller gap between them are read as one range. */
const maxGapMicros = 60_000_000;
const maxRanges = 100;
/** Maximum number of traces that are walked at once, and of runs walked in one trace. */
const maxWalkedTraces = 1_000;
const maxWalkedRuns = 100_000;
/**
 * Maximum number of ancestors that are sent with one query. In a larger trace, the further model calls count only for
 * their parent and for the root.
 */
const maxWalkedAncestors = 400_000;
/** Target in the sums that indicates a model call without dotted_order, whose ancestors have to be walked. */
const unwalkedMarker = '00000000-0000-0000-0000-000000000000';

/**
 * Returns the sums over the descendants, by requested run. Runs without descendants that report a figure are omitted.
 *
 * @throws errors of ClickHouse.
 */
export async function sumDescendants(
  clickhouse: ClickHouse,
  request: FigureRequest,
): Promise<ReadonlyMap<string, Figures>> {
  const ranges = await findTimeRanges(clickhouse, request);
  if (ranges.length === 0) return new Map();
  const sums = await sumCalls(clickhouse, request, ranges, []);
  const unwalked = new Set(sums.filter(({ target }) => target === unwalkedMarker).map(({ trace_id }) => trace_id));
  const figures = new Map<string, Figures>();
  const addSums = (rows: readonly FigureSums[]) => {
    for (const row of rows) if (row.target !== unwalkedMarker) figures.set(row.target, new Map(row.figures));
  };
  addSums(sums.filter(({ trace_id }) => !unwalked.has(trace_id)));
  for await (const { traceIds, parents } of walkTraces(clickhouse, request, unwalked)) {
    const part = {
      ...request,
      traces: '{walked_traces:Array(UUID)}',
      params: { ...request.params, walked_traces: traceIds },
    };
    addSums(await sumCalls(clickhouse, part, ranges, parents));
  }
  return figures;
}

/** Key times of runs of one project, in microseconds since 1970; both ends are inclusive. */
interface TimeRange {
  readonly project: string;
  readonly from: number;
  readonly to: number;
}

/** Finds time ranges that contain the model calls of the traces. */
async function findTimeRanges(clickhouse: ClickHouse, request: FigureRequest): Promise<TimeRange[]> {
  const rows = await clickhouse.query<TimeRange>({
    ...bindRequest(request),
    name: 'find-usage-times',
    settings: lookupSettings,
    // Grouped by hour, which bounds the number of rows. Every model call is in the range of some stored row of its trace.
    sql: `SELECT session_id AS project, toUnixTimestamp64Micro(min(first_usage)) AS from, toUnixTimestamp64Micro(max(last_usage)) AS to
          FROM {stored_trace_locations:Identifier}
          WHERE tenant_id = {tenant:UUID} AND session_id IN {figure_projects:Array(UUID)} AND trace_id IN ${request.traces}
            AND isNotNull(first_usage)
          GROUP BY session_id, toStartOfHour(first_usage)`,
  });
  rows.sort((one, other) => one.project.localeCompare(other.project) || one.from - other.from);
  const mergedRanges: { project: string; from: number; to: number }[] = [];
  for (const row of rows) {
    const last = mergedRanges.at(-1);
    if (last?.project !== row.project || row.from > last.to + maxGapMicros) mergedRanges.push({ ...row });
    else last.to = Math.max(last.to, row.to);
  }
  return mergedRanges;
}

/** SQL condition on the key of `runs`; if there are too many ranges, it covers the time between them. */
function buildRangesCondition(ranges: readonly TimeRange[]): string {
  const between = (from: number, to: number) =>
    `start_time BETWEEN fromUnixTimestamp64Micro(${from}) AND fromUnixTimestamp64Micro(${to})`;
  if (ranges.length > maxRanges) {
    const [from, to] = ranges.reduce(([first, last], each) => [Math.min(first, each.from), Math.max(last, each.to)], [
      Number.POSITIVE_INFINITY,
      0,
    ] as [number, number]);
    return `session_id IN {figure_projects:Array(UUID)} AND ${between(from, to)}`;
  }
  const byProject = new Map<string, string[]>();
  for (const { project, from, to } of ranges) {
    byProject.set(project, [...(byProject.get(project) ?? []), between(from, to)]);
  }
  return [...byProject].map(([id, times]) => `session_id = '${id}' AND (${times.join(' OR ')})`).join(' OR ');
}

const toSqlList = (names: readonly string[]) => `[${names.map((name) => `'${name}'`).join(', ')}]`;
/**
 * Maximum number and length of the keys that are summed of each details object of a model call. The query has a row for
 * every key of every call and each of its ancestors; providers report about ten keys.
 */
const maxDetailKeys = 32;
const maxDetailKeyBytes = 128;
/** SQL: names and values of the keys of the details of a model call, all as text. */
export const detailsSql = `arrayFlatten(arrayMap(detail -> arrayMap(
    pair -> (concat(detail, '.', pair.1), trim(BOTH '"' FROM pair.2)),
    arraySlice(arrayFilter(pair -> length(pair.1) <= ${maxDetailKeyBytes},
      JSONExtractKeysAndValuesRaw(ifNull(usage_details, ''), detail)), 1, ${maxDetailKeys})), ${toSqlList(detailNames)}))`;
const statedNamesSql = toSqlList(Object.keys(figureColumns));
const statedValuesSql = `[${Object.keys(figureColumns)
  .map((name) => `toString(${name})`)
  .join(', ')}]`;
const buildFiguresSql = (withDetails: boolean) => `arrayFilter(figure -> isNotNull(figure.2), arrayMap(
    (name, text) -> (name, toDecimal256OrNull(text, 20)), ${
      withDetails
        ? `arrayConcat(${statedNamesSql}, details.1), arrayConcat(${statedValuesSql}, details.2)`
        : `${statedNamesSql}, ${statedValuesSql}`
    }))`;

const buildAncestorsSql = (dottedOrder: string) =>
  `arrayDistinct(arrayMap(segment -> toUUID(right(segment, 36)), arrayPopBack(splitByChar('.', assumeNotNull(${dottedOrder})))))`;

/**
 * SQL: ancestors of a run as stated by its own row, which are those in dotted_order or, without it, only its parent.
 */
export const statedAncestorsSql = `multiIf(isNotNull(dotted_order), ${buildAncestorsSql('dotted_order')},
  isNull(parent_run_id), CAST([] AS Array(UUID)), [assumeNotNull(parent_run_id)])`;

/**
 * SQL: a call and its ancestors, as tuples of id, whether it is the call, and the ancestors of the call. Ancestors have
 * none here: an ARRAY JOIN would copy the list once for each element. The query must define `ancestors`.
 */
export const buildNodesSql = (call: string) =>
  `arrayConcat([(${call}, true, ancestors)], arrayMap(above -> (above, false, CAST([] AS Array(UUID))), ancestors))`;

/** Sums of the model calls of one trace below one run. */
interface FigureSums {
  readonly target: string;
  readonly trace_id: string;
  readonly figures: readonly (readonly [name: string, sum: string])[];
}

async function sumCalls(
  clickhouse: ClickHouse,
  request: FigureRequest,
  ranges: readonly TimeRange[],
  walked: readonly WalkedParent[],
): Promise<FigureSums[]> {
  const columns = [...Object.keys(figureColumns), ...(request.withDetails ? ['usage_details'] : [])];
  return clickhouse.query<FigureSums>({
    ...bindRequest(request),
    name: 'sum-descendants',
    ...(request.settings && { settings: request.settings }),
    externalTable: { name: 'walked', structure: 'trace_id UUID, id UUID, ancestors String', rows: walked },
    // Planning takes most of the time of a small query, so every table is read only once.
    sql: `WITH
        calls AS (
          SELECT id, trace_id, placed, parent, ${request.withDetails ? `${detailsSql} AS details, ` : ''}${buildFiguresSql(request.withDetails)} AS figures
          FROM (
            WITH ${costExpressions}
            SELECT id, trace_id, dotted_order AS placed, parent_run_id AS parent, ${columns.map(selectColumn).join(', ')}
            FROM {stored_runs:Identifier} FINAL
            PREWHERE tenant_id = {tenant:UUID} AND (${buildRangesCondition(ranges)}) AND trace_id IN ${request.traces}
            WHERE isNull(deleted_at) AND ${isModelCallSql})
        ),
        stating AS (
          SELECT calls.id AS id, calls.trace_id AS call_trace, figure.1 AS name, assumeNotNull(figure.2) AS value,
            multiIf(
              isNotNull(placed),
                ${buildAncestorsSql('placed')},
              notEmpty(walked.ancestors), arrayDistinct(arrayMap(text -> toUUID(text), splitByChar('.', walked.ancestors))),
              isNull(parent), CAST([] AS Array(UUID)),
              [toUUID('${unwalkedMarker}'), assumeNotNull(parent)]) AS ancestors
          FROM calls LEFT ANY JOIN walked ON walked.trace_id = calls.trace_id AND walked.id = calls.parent
          ARRAY JOIN figures AS figure
        ),
        -- The calls without a descendant that reports the same figure.
        leaves AS (
          SELECT name, any(call_trace) AS leaf_trace, any(value) AS leaf_value, any(node.3) AS leaf_ancestors
          FROM stating ARRAY JOIN ${buildNodesSql('id')} AS node
          GROUP BY node.1, name HAVING min(node.2)
        )
      SELECT target, trace_id, groupArray((name, sum)) AS figures FROM (
        SELECT target, leaf_trace AS trace_id, name, toString(sum(leaf_value)) AS sum
        FROM leaves ARRAY JOIN leaf_ancestors AS target
        WHERE target = toUUID('${unwalkedMarker}') OR target IN ${request.targets}
        GROUP BY target, trace_id, name)
      GROUP BY target, trace_id`,
  });
}

/** The parent of model calls without dotted_order, and these calls' ancestors, root first, joined by dots. */
export type WalkedParent = readonly [traceId: string, parentId: string, ancestors: string];

/** Traces whose sums one query computes, and the parents of all their model calls without dotted_order. */
interface WalkedTraces {
  readonly traceIds: string[];
  readonly parents: WalkedParent[];
}

/** Finds the ancestors of the model calls without dotted_order. */
async function* walkTraces(
  clickhouse: ClickHouse,
  request: FigureRequest,
  traceIds: ReadonlySet<string>,
): AsyncGenerator<WalkedTraces> {
  if (traceIds.size === 0) return;
  const rows = await clickhouse.query<{ trace_id: string; first: number; last: number }>({
    ...bindRequest(request),
    name: 'list-traces',
    settings: lookupSettings,
    sql: `SELECT trace_id, toUnixTimestamp64Micro(min(first_start)) AS first, toUnixTimestamp64Micro(max(last_start)) AS last
          FROM {stored_trace_locations:Identifier} WHERE tenant_id = {tenant:UUID} AND trace_id IN ${request.traces} GROUP BY trace_id`,
  });
  const traces = rows.filter(({ trace_id }) => traceIds.has(trace_id)).sort((one, other) => one.first - other.first);
  for (let at = 0; at < traces.length; at += maxWalkedTraces) {
    const some = traces.slice(at, at + maxWalkedTraces);
    const ids = some.map(({ trace_id }) => trace_id);
    const lastMicros = some.reduce((last, trace) => Math.max(last, trace.last), 0);
    const window = { fromMicros: some[0]!.first, untilMicrosExclusive: lastMicros + 1 };
    let part: WalkedTraces = { traceIds: [], parents: [] };
    let ancestors = 0;
    const limits = { window, maxPerTrace: maxWalkedRuns };
    for await (const [traceId, members] of readMembersByTrace(clickhouse, request.scope, ids, limits)) {
      const walked = walkParents(members, maxWalkedAncestors);
      if (ancestors > 0 && ancestors + walked.ancestors > maxWalkedAncestors) {
        yield part;
        part = { traceIds: [], parents: [] };
        ancestors = 0;
      }
      part.traceIds.push(traceId);
      for (const parent of walked.parents) part.parents.push(parent);
      ancestors += walked.ancestors;
    }
    yield part;
  }
}

/**
 * Finds the ancestors of the model calls without dotted_order of one trace, once for all calls of the same parent. After
 * `maxAncestors`, a call has only its parent and the root as ancestors.
 */
export function walkParents(
  members: readonly TraceMember[],
  maxAncestors: number,
): { readonly parents: readonly WalkedParent[]; readonly ancestors: number } {
  const tree = new TraceTree(members);
  const rootId = members.find((member) => member.parentRunId === undefined)?.runId ?? members[0]?.traceId ?? '';
  const parents = new Map<string, WalkedParent>();
  let ancestors = 0;
  for (const call of members) {
    const { traceId, parentRunId } = call;
    if (!call.isModelCall || call.dottedOrder !== undefined || parentRunId === undefined) continue;
    if (parents.has(parentRunId)) continue;
    const ids = ancestors < maxAncestors ? tree.listAncestorIds(call) : [...new Set([rootId, parentRunId])];
    ancestors += ids.length;
    parents.set(parentRunId, [traceId, parentRunId, ids.join('.')]);
  }
  return { parents: [...parents.values()], ancestors };
}

function bindRequest({ scope, params, signal }: FigureRequest): Pick<Query, 'params' | 'shardTables' | 'signal'> {
  return {
    shardTables: ['runs', 'trace_locations'],
    params: { ...params, tenant: scope.tenantId, figure_projects: scope.projectIds },
    signal,
  };
}

/**
 * Builds an SQL condition on `runs FINAL`: the figure of a run, as {@link sumDescendants} computes it, satisfies
 * `condition`. A run does not match if no model call in its subtree states the figure. A run that was sent without
 * dotted_order counts only for its parent, and not for the ancestors of its parent.
 *
 * In each branch of the trace, only the lowest model call that states the figure counts, for itself and for all its
 * ancestors.
 *
 * @param condition Condition on `total`, which is a decimal.
 * @param traceRange Conditions on the key of all runs of the traces that the query reads.
 */
export function buildFigureCondition(
  figure: keyof typeof figureColumns,
  condition: string,
  traceRange: string,
): string {
  return `id IN (
    SELECT target FROM (SELECT target, sum(leaf_value) AS total FROM (
      SELECT node.1 AS leaf, any(value) AS leaf_value, any(node.3) AS leaf_ancestors FROM (
        SELECT id AS call, assumeNotNull(stated) AS value, ancestors FROM (
          WITH ${costExpressions}
          SELECT id, toDecimal256OrNull(toString(${figure}), 20) AS stated, ${statedAncestorsSql} AS ancestors, ${selectColumn(figure)}
          FROM runs FINAL PREWHERE ${traceRange} WHERE isNull(deleted_at) AND ${isModelCallSql})
        WHERE isNotNull(stated))
      ARRAY JOIN ${buildNodesSql('call')} AS node
      GROUP BY leaf HAVING min(node.2))
    ARRAY JOIN arrayConcat([leaf], leaf_ancestors) AS target
    GROUP BY target) WHERE ${condition})`;
}
