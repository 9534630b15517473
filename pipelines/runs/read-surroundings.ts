import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { sumDescendants } from './descendant-figures.ts';
import { ancestorIds, buildDottedOrder, type RunWithoutDottedOrder } from './dotted-orders.ts';
import type { RunExtras } from './run-columns.ts';
import type { RelatedData, RelatedKind } from './run-fields.ts';
import type { RunScope } from './run-scope.ts';
import { readFirstReceived, readTraceMembers, readTraceSpans, type TraceMember } from './trace-facts.ts';
import type { TracedRunRow } from './write-runs.ts';

type Members = ReadonlyMap<string, readonly TraceMember[]>;

/** Reads the data that the response needs beyond the rows: at most one query for each kind, all concurrently. */
export async function readRelatedData(
  deps: { readonly clickhouse: ClickHouse; readonly extras: RunExtras },
  tenantId: string,
  rows: readonly TracedRunRow[],
  wanted: ReadonlySet<RelatedKind>,
): Promise<RelatedData> {
  const { clickhouse, extras } = deps;
  const runIds = rows.map((row) => row.key.runId);
  const scope: RunScope = { tenantId, projectIds: [...new Set(rows.map((row) => row.key.projectId))] };
  const runs = rows.map(asMember);
  const unplaced = runs.filter((run) => run.dottedOrder === undefined && run.runId !== run.traceId);
  const toWalk = wanted.has('children') ? runs : unplaced;
  const ifWanted = <T>(kind: RelatedKind, read: () => Promise<ReadonlyMap<string, T>>) =>
    wanted.has(kind) && rows.length > 0 ? read() : Promise.resolve(new Map<string, T>());
  const [members, feedbackStats, attachmentUrls, figures, firstReceived, spans] = await Promise.all([
    toWalk.length > 0
      ? readTraceMembers(clickhouse, scope, distinctTraceIds(toWalk))
      : Promise.resolve(new Map<string, never>()),
    ifWanted('feedbackStats', () => extras.feedbackStats(tenantId, runIds)),
    ifWanted('attachmentUrls', () => extras.attachmentUrls(tenantId, runIds)),
    ifWanted('figures', () =>
      sumDescendants(clickhouse, {
        scope,
        traces: '{figure_traces:Array(UUID)}',
        targets: '{figure_targets:Array(UUID)}',
        params: { figure_traces: distinctTraceIds(runs), figure_targets: runIds },
      }),
    ),
    ifWanted('firstReceived', () => readFirstReceived(clickhouse, tenantId, runs)),
    ifWanted('spans', () => readTraceSpans(clickhouse, tenantId, distinctTraceIds(runs))),
  ]);
  const dottedOrders = buildDottedOrders(runs, members);
  const children = wanted.has('children') ? findChildren(runs, members) : new Map();
  return { tenantId, dottedOrders, feedbackStats, attachmentUrls, children, figures, firstReceived, spans };
}

function asMember({ key, text, number }: TracedRunRow): RunWithoutDottedOrder {
  return {
    traceId: key.traceId,
    runId: key.runId,
    startTimeMicros: key.startTimeMicros,
    parentRunId: text('parentRunId'),
    dottedOrder: text('dottedOrder'),
    traceTimeMicros: number('traceTimeMicros') ?? key.startTimeMicros,
  };
}

function distinctTraceIds(runs: readonly TraceMember[]): string[] {
  return [...new Set(runs.map((run) => run.traceId))];
}

function buildDottedOrders(runs: readonly RunWithoutDottedOrder[], members: Members): Map<string, string> {
  const byTrace = new Map([...members].map(([traceId, list]) => [traceId, new Map(list.map((m) => [m.runId, m]))]));
  return new Map(runs.map((run) => [run.runId, buildDottedOrder(run, byTrace.get(run.traceId) ?? new Map())]));
}

/** Children and descendants of `runs` among the members of their traces. */
function findChildren(runs: readonly RunWithoutDottedOrder[], members: Members) {
  const children = new Map(runs.map((run) => [run.runId, { all: [] as string[], direct: [] as string[] }]));
  for (const [traceId, list] of members) {
    const byId = new Map(list.map((member) => [member.runId, member]));
    const traceTimeMicros = byId.get(traceId)?.startTimeMicros ?? list[0]?.startTimeMicros ?? 0;
    for (const member of list) {
      const ancestors = ancestorIds(buildDottedOrder({ ...member, traceTimeMicros }, byId));
      for (const ancestor of ancestors) children.get(ancestor)?.all.push(member.runId);
      const parent = member.parentRunId ?? ancestors.at(-1);
      if (parent !== undefined) children.get(parent)?.direct.push(member.runId);
    }
  }
  return children;
}
