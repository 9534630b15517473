/**
 * Tokens and costs of runs that have model calls below them.
 *
 * A figure (a token count, a cost, one key of their details) of a run is the sum over its descendants that state this figure and have
 * no descendant that states it too; a run without such descendants has its own. So nothing counts twice where a call and the call
 * inside it both state what they used. Sums are made when they are read, from merged rows of model calls: no order of arrival, repeat or
 * patch can make them wrong.
 *
 *   1. `trace_spans` says between which times the runs of the traces lie.
 *   2. One query over these times adds up what the model calls state, by ancestor. Ancestors are the ids in dotted_order.
 *   3. Runs that came without dotted_order have only a parent. If there are some, their ancestors are found by walking the traces, and the
 *      query is repeated with them.
 */
import type { Query, QueryParameter, Warehouse } from '../../infra/clickhouse/warehouse.ts';
import { ancestorIds, dottedOrderOf } from './dotted-orders.ts';
import { type RunColumn, runColumns } from './run-columns.ts';
import type { RunScope } from './run-scope.ts';
import { readMembersOfTraces } from './trace-members.ts';

/** Figures by their names in a run, and the columns of a run's own. */
export const figureColumns = {
  prompt_tokens: 'promptTokens',
  completion_tokens: 'completionTokens',
  total_tokens: 'totalTokens',
  prompt_cost: 'promptCost',
  completion_cost: 'completionCost',
  total_cost: 'totalCost',
} as const satisfies Record<string, RunColumn>;

/** Details by kind of token; each key of one is a figure. */
export const detailNames = [
  'prompt_token_details',
  'completion_token_details',
  'prompt_cost_details',
  'completion_cost_details',
] as const;

/** By figure: a name of {@link figureColumns}, or one of {@link detailNames}, a dot and a key. Decimals as text. */
export type Figures = ReadonlyMap<string, string>;

export interface FigureRequest {
  readonly scope: RunScope;
  /** What follows `IN`: lists or subqueries of the traces, and of the runs whose figures are wanted. */
  readonly traces: string;
  readonly targets: string;
  readonly params: Readonly<Record<string, QueryParameter>>;
  readonly signal?: AbortSignal | undefined;
  readonly timeoutMs?: number | undefined;
}

/** Stretches that are no further apart are read as one. */
const joinedMicros = 60_000_000;
const maxStretches = 100;
/** Traces whose runs are walked at once, and runs of one trace that are. */
const walkedTraces = 1_000;
const maxWalkedRuns = 100_000;
const nobody = '00000000-0000-0000-0000-000000000000';

/**
 * What the descendants of the wanted runs add up to; runs without descendants that state anything are left out.
 * @throws what the warehouse throws.
 */
export async function sumDescendants(
  warehouse: Warehouse,
  request: FigureRequest,
): Promise<ReadonlyMap<string, Figures>> {
  const stretches = await findStretches(warehouse, request);
  if (stretches.length === 0) return new Map();
  const sums = await sumWith(warehouse, request, stretches, []);
  if (!sums.has(nobody)) return sums;
  const walked = await sumWith(warehouse, request, stretches, await walkedAncestors(warehouse, request, stretches));
  return new Map([...walked].filter(([runId]) => runId !== nobody));
}

interface Stretch {
  readonly from: number;
  readonly to: number;
}

/** Between which times the traces' runs lie; a few stretches, in order. */
async function findStretches(warehouse: Warehouse, request: FigureRequest): Promise<Stretch[]> {
  const rows = await warehouse.query<Stretch>({
    ...bound(request),
    name: 'find-trace-spans',
    // Rounded, so that there are never more rows than hours.
    sql: `SELECT min(first) AS from, max(last) AS to FROM (
            SELECT toUnixTimestamp64Micro(min(first_start)) AS first, toUnixTimestamp64Micro(max(last_start)) AS last
            FROM trace_spans WHERE tenant_id = {tenant:UUID} AND trace_id IN ${request.traces} GROUP BY trace_id)
          GROUP BY intDiv(first, 3600000000) ORDER BY from`,
  });
  const joined: { from: number; to: number }[] = [];
  for (const { from, to } of rows) {
    const last = joined.at(-1);
    if (last === undefined || from > last.to + joinedMicros) joined.push({ from, to });
    else last.to = Math.max(last.to, to);
  }
  const [first, last] = [joined[0], joined.at(-1)];
  return joined.length > maxStretches && first && last ? [{ from: first.from, to: last.to }] : joined;
}

const stated = Object.entries(figureColumns).map(
  ([name, column]) => `('${name}', toDecimal256OrNull(toString(${runColumns[column]}), 20))`,
);
const statedDetails = detailNames.map(
  (name) => `arrayMap(pair -> (concat('${name}.', pair.1), toDecimal256OrNull(trim(BOTH '"' FROM pair.2), 20)),
      JSONExtractKeysAndValuesRaw(ifNull(${runColumns.usageDetails}, ''), '${name}'))`,
);

async function sumWith(
  warehouse: Warehouse,
  request: FigureRequest,
  stretches: readonly Stretch[],
  walked: readonly (readonly [id: string, ancestors: string])[],
): Promise<Map<string, Figures>> {
  const times = stretches.map(
    ({ from, to }) => `start_time BETWEEN fromUnixTimestamp64Micro(${from}) AND fromUnixTimestamp64Micro(${to})`,
  );
  const rows = await warehouse.query<{ target: string; figures: [name: string, sum: string][] }>({
    ...bound(request),
    name: 'sum-descendants',
    external: { name: 'walked', structure: 'id UUID, ancestors String', rows: walked },
    sql: `WITH
        calls AS (
          SELECT id,
            dotted_order AS placed,
            coalesce(patch_parent_run_id, post_parent_run_id) AS parent,
            arrayFilter(figure -> isNotNull(figure.2), arrayConcat([${stated.join(', ')}], ${statedDetails.join(', ')})) AS figures
          FROM runs FINAL
          PREWHERE tenant_id = {tenant:UUID} AND session_id IN {figure_projects:Array(UUID)} AND (${times.join(' OR ')})
            AND trace_id IN ${request.traces}
          WHERE isNull(deleted_at) AND notEmpty(figures)
        ),
        stating AS (
          SELECT calls.id AS id, tupleElement(figure, 1) AS name, assumeNotNull(tupleElement(figure, 2)) AS value,
            multiIf(
              isNotNull(placed),
                arrayDistinct(arrayMap(segment -> toUUID(right(segment, 36)), arrayPopBack(splitByChar('.', assumeNotNull(placed))))),
              notEmpty(walked.ancestors), arrayDistinct(arrayMap(text -> toUUID(text), splitByChar('.', walked.ancestors))),
              isNull(parent), CAST([] AS Array(UUID)),
              [toUUID('${nobody}'), assumeNotNull(parent)]) AS ancestors
          FROM calls LEFT ANY JOIN walked ON walked.id = calls.id
          ARRAY JOIN figures AS figure
        )
      SELECT target, groupArray((name, sum)) AS figures FROM (
        SELECT target, name, toString(sum(value)) AS sum
        FROM stating ARRAY JOIN ancestors AS target
        WHERE (target = toUUID('${nobody}') OR target IN ${request.targets})
          AND (id, name) NOT IN (SELECT arrayJoin(ancestors), name FROM stating)
        GROUP BY target, name)
      GROUP BY target`,
  });
  return new Map(rows.map(({ target, figures }) => [target, new Map(figures)]));
}

/** The ancestors of runs that came without dotted_order, joined by dots; of those beyond the limit only the parent counts. */
async function walkedAncestors(
  warehouse: Warehouse,
  request: FigureRequest,
  stretches: readonly Stretch[],
): Promise<[string, string][]> {
  const window = { fromMicros: stretches[0]?.from ?? 0, untilMicrosExclusive: (stretches.at(-1)?.to ?? 0) + 1 };
  const traces = await warehouse.query<{ trace_id: string }>({
    ...bound(request),
    name: 'list-traces',
    sql: `SELECT DISTINCT trace_id FROM trace_spans WHERE tenant_id = {tenant:UUID} AND trace_id IN ${request.traces}`,
  });
  const walked: [string, string][] = [];
  for (let at = 0; at < traces.length; at += walkedTraces) {
    const ids = traces.slice(at, at + walkedTraces).map(({ trace_id }) => trace_id);
    for (const list of (
      await readMembersOfTraces(warehouse, request.scope, ids, { window, maxOfTrace: maxWalkedRuns })
    ).values()) {
      const byId = new Map(list.map((member) => [member.runId, member]));
      for (const member of list) {
        if (member.dottedOrder !== undefined || member.parentRunId === undefined) continue;
        const root = byId.get(member.traceId) ?? member;
        const order = dottedOrderOf({ ...member, traceTimeMicros: root.startTimeMicros }, byId);
        walked.push([member.runId, ancestorIds(order).join('.')]);
      }
    }
  }
  return walked;
}

function bound({ scope, params, signal, timeoutMs }: FigureRequest): Pick<Query, 'params' | 'signal' | 'timeoutMs'> {
  return {
    params: { ...params, tenant: scope.tenantId, figure_projects: scope.projectIds },
    ...(signal && { signal }),
    ...(timeoutMs !== undefined && { timeoutMs }),
  };
}
