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
 *   3. Runs sent without dotted_order only have a parent. If there are any, their ancestors are found by walking the
 *      traces, and the query is repeated with them.
 */
import type { ClickHouseSettings } from '@clickhouse/client';
import type { ClickHouse, Query, QueryParameter } from '../../infra/clickhouse/clickhouse.ts';
import { lookupSettings } from '../../infra/clickhouse/settings.ts';
import { buildDottedOrder, listAncestorIds } from './dotted-orders.ts';
import { isModelCallSql, type RunColumn } from './run-columns.ts';
import type { RunScope } from './run-scope.ts';
import { readMembersByTrace } from './trace-facts.ts';

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
   * Right side of `IN` for the traces: a list or a subquery. `targets` is the right side of `IN` for the runs whose
   * figures are requested.
   */
  readonly traces: string;
  readonly targets: string;
  readonly params: Readonly<Record<string, QueryParameter>>;
  /** Settings of the query on `runs`. */
  readonly settings?: ClickHouseSettings;
  readonly signal?: AbortSignal | undefined;
  readonly timeoutMs?: number | undefined;
}

/** Time ranges with a smaller gap between them are read as one range. */
const maxGapMicros = 60_000_000;
const maxRanges = 100;
/** Maximum number of traces that are walked at once, and of runs walked in one trace. */
const maxWalkedTraces = 1_000;
const maxWalkedRuns = 100_000;
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
  if (!sums.has(unwalkedMarker)) return sums;
  const walkedSums = await sumCalls(clickhouse, request, ranges, await walkAncestors(clickhouse, request));
  return new Map([...walkedSums].filter(([runId]) => runId !== unwalkedMarker));
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
    // Grouped by hour, which bounds the number of rows.
    sql: `SELECT project, min(first) AS from, max(last) AS to FROM (
            SELECT session_id AS project, toUnixTimestamp64Micro(assumeNotNull(min(first_usage))) AS first,
              toUnixTimestamp64Micro(assumeNotNull(max(last_usage))) AS last
            FROM trace_locations
            WHERE tenant_id = {tenant:UUID} AND session_id IN {figure_projects:Array(UUID)} AND trace_id IN ${request.traces}
            GROUP BY session_id, trace_id HAVING isNotNull(min(first_usage)))
          GROUP BY project, intDiv(first, 3600000000) ORDER BY project, from`,
  });
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
/** SQL: names and values of the keys of the details of a model call, all as text. */
export const detailsSql = `arrayFlatten(arrayMap(detail -> arrayMap(
    pair -> (concat(detail, '.', pair.1), trim(BOTH '"' FROM pair.2)),
    JSONExtractKeysAndValuesRaw(ifNull(usage_details, ''), detail)), ${toSqlList(detailNames)}))`;
const statedFiguresSql = Object.keys(figureColumns).map((name) => `toString(${name})`);
const figuresSql = `arrayFilter(figure -> isNotNull(figure.2), arrayMap(
    (name, text) -> (name, toDecimal256OrNull(text, 20)),
    arrayConcat(${toSqlList(Object.keys(figureColumns))}, details.1), arrayConcat([${statedFiguresSql.join(', ')}], details.2)))`;

const buildAncestorsSql = (dottedOrder: string) =>
  `arrayDistinct(arrayMap(segment -> toUUID(right(segment, 36)), arrayPopBack(splitByChar('.', assumeNotNull(${dottedOrder})))))`;

/**
 * SQL: ancestors of a run as stated by its own row, which are those in dotted_order or, without it, only its parent.
 */
export const statedAncestorsSql = `multiIf(isNotNull(dotted_order), ${buildAncestorsSql('dotted_order')},
  isNull(parent_run_id), CAST([] AS Array(UUID)), [assumeNotNull(parent_run_id)])`;

async function sumCalls(
  clickhouse: ClickHouse,
  request: FigureRequest,
  ranges: readonly TimeRange[],
  walked: readonly (readonly [id: string, ancestors: string])[],
): Promise<Map<string, Figures>> {
  const rows = await clickhouse.query<{ target: string; figures: [name: string, sum: string][] }>({
    ...bindRequest(request),
    name: 'sum-descendants',
    ...(request.settings && { settings: request.settings }),
    externalTable: { name: 'walked', structure: 'id UUID, ancestors String', rows: walked },
    // Planning takes most of the time of a small query, so every table is read only once.
    sql: `WITH
        calls AS (
          SELECT id, placed, parent, ${detailsSql} AS details, ${figuresSql} AS figures
          FROM (
            -- Planning expands the expressions of costs wherever they are used, so they are used once.
            SELECT id, dotted_order AS placed, parent_run_id AS parent, usage_details, ${Object.keys(figureColumns).join(', ')}
            FROM runs FINAL
            PREWHERE tenant_id = {tenant:UUID} AND (${buildRangesCondition(ranges)}) AND trace_id IN ${request.traces}
            WHERE isNull(deleted_at) AND ${isModelCallSql})
        ),
        stating AS (
          SELECT calls.id AS id, figure.1 AS name, assumeNotNull(figure.2) AS value,
            multiIf(
              isNotNull(placed),
                ${buildAncestorsSql('placed')},
              notEmpty(walked.ancestors), arrayDistinct(arrayMap(text -> toUUID(text), splitByChar('.', walked.ancestors))),
              isNull(parent), CAST([] AS Array(UUID)),
              [toUUID('${unwalkedMarker}'), assumeNotNull(parent)]) AS ancestors
          FROM calls LEFT ANY JOIN walked ON walked.id = calls.id
          ARRAY JOIN figures AS figure
        ),
        -- The calls without a descendant that reports the same figure: position 1 is the call, the others are its ancestors.
        leaves AS (
          SELECT name, any(value) AS leaf_value, any(ancestors) AS leaf_ancestors
          FROM stating
          ARRAY JOIN arrayConcat([id], ancestors) AS node, arrayEnumerate(arrayConcat([id], ancestors)) AS position
          GROUP BY node, name HAVING max(position) = 1
        )
      SELECT target, groupArray((name, sum)) AS figures FROM (
        SELECT target, name, toString(sum(leaf_value)) AS sum
        FROM leaves ARRAY JOIN leaf_ancestors AS target
        WHERE target = toUUID('${unwalkedMarker}') OR target IN ${request.targets}
        GROUP BY target, name)
      GROUP BY target`,
  });
  return new Map(rows.map(({ target, figures }) => [target, new Map(figures)]));
}

/**
 * Finds the ancestors of runs without dotted_order, joined by dots. A run beyond the limit is omitted, so that the
 * query uses only its parent as an ancestor.
 */
async function walkAncestors(clickhouse: ClickHouse, request: FigureRequest): Promise<[string, string][]> {
  const traces = await clickhouse.query<{ trace_id: string; first: number; last: number }>({
    ...bindRequest(request),
    name: 'list-traces',
    settings: lookupSettings,
    sql: `SELECT trace_id, toUnixTimestamp64Micro(min(first_start)) AS first, toUnixTimestamp64Micro(max(last_start)) AS last
          FROM trace_locations WHERE tenant_id = {tenant:UUID} AND trace_id IN ${request.traces} GROUP BY trace_id ORDER BY first`,
  });
  const walked: [string, string][] = [];
  for (let at = 0; at < traces.length; at += maxWalkedTraces) {
    const some = traces.slice(at, at + maxWalkedTraces);
    const ids = some.map(({ trace_id }) => trace_id);
    const lastMicros = some.reduce((last, trace) => Math.max(last, trace.last), 0);
    const window = { fromMicros: some[0]!.first, untilMicrosExclusive: lastMicros + 1 };
    for (const list of (
      await readMembersByTrace(clickhouse, request.scope, ids, { window, maxPerTrace: maxWalkedRuns })
    ).values()) {
      const byId = new Map(list.map((member) => [member.runId, member]));
      for (const member of list) {
        if (member.dottedOrder !== undefined || member.parentRunId === undefined) continue;
        const root = byId.get(member.traceId) ?? member;
        const order = buildDottedOrder({ ...member, traceTimeMicros: root.startTimeMicros }, byId);
        walked.push([member.runId, listAncestorIds(order).join('.')]);
      }
    }
  }
  return walked;
}

function bindRequest({
  scope,
  params,
  signal,
  timeoutMs,
}: FigureRequest): Pick<Query, 'params' | 'signal' | 'timeoutMs'> {
  return {
    params: { ...params, tenant: scope.tenantId, figure_projects: scope.projectIds },
    ...(signal && { signal }),
    ...(timeoutMs !== undefined && { timeoutMs }),
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
      SELECT node, any(value) AS leaf_value, any(ancestors) AS leaf_ancestors FROM (
        SELECT id AS call, assumeNotNull(toDecimal256OrNull(toString(${figure}), 20)) AS value, ${statedAncestorsSql} AS ancestors
        FROM runs FINAL PREWHERE ${traceRange}
        WHERE isNull(deleted_at) AND ${isModelCallSql} AND isNotNull(toDecimal256OrNull(toString(${figure}), 20)))
      ARRAY JOIN arrayConcat([call], ancestors) AS node, arrayEnumerate(arrayConcat([call], ancestors)) AS position
      GROUP BY node HAVING max(position) = 1)
    ARRAY JOIN arrayConcat([node], leaf_ancestors) AS target
    GROUP BY target) WHERE ${condition})`;
}
