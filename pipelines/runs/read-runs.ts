import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { lookupSettings } from '../../infra/clickhouse/settings.ts';
import { sumDescendants } from './descendant-figures.ts';
import { listAncestorIds, TraceTree } from './dotted-orders.ts';
import type { RunExtras, RunKey } from './run-columns.ts';
import { type RelatedData, type RelatedKind, toTraceMember } from './run-fields.ts';
import { type RunToRead, readRunRows, type TracedRunRow } from './run-rows.ts';
import type { RunScope } from './run-scope.ts';
import { readTurnNumbers } from './threads.ts';
import {
  readFirstReceivedTimes,
  readFirstTokenTimes,
  readTraceMembers,
  readTraceTimeRanges,
  type TraceMember,
} from './trace-facts.ts';
import type { Selection } from './write-runs.ts';

type Members = ReadonlyMap<string, readonly TraceMember[]>;

export interface LoadedRuns {
  readonly rows: readonly TracedRunRow[];
  readonly related: RelatedData;
}

/**
 * Reads runs, and the data that the response needs in addition to their rows. Each kind of data takes at most one
 * query; all queries run concurrently unless they need the rows. Runs that were deleted or have expired since their
 * keys were found are omitted.
 *
 * @throws errors of ClickHouse.
 */
export async function readRuns(
  deps: { readonly clickhouse: ClickHouse; readonly extras: RunExtras },
  tenantId: string,
  keys: readonly RunToRead[],
  { columns, relatedKinds }: Pick<Selection, 'columns' | 'relatedKinds'>,
): Promise<LoadedRuns> {
  const { clickhouse, extras } = deps;
  const runIds = keys.map((key) => key.runId);
  const traceIds = listDistinctTraceIds(keys);
  const scope: RunScope = { tenantId, projectIds: [...new Set(keys.map((key) => key.projectId))] };
  const readIfSelected = <T>(kind: RelatedKind, read: () => Promise<ReadonlyMap<string, T>>) =>
    relatedKinds.has(kind) && keys.length > 0 ? read() : Promise.resolve(new Map<string, T>());

  async function readRows() {
    const rows = await readRunRows(clickhouse, tenantId, keys, columns);
    const runs = rows.map(toTraceMember);
    const runsWithoutDottedOrder = runs.filter((run) => run.dottedOrder === undefined && run.runId !== run.traceId);
    const runsToWalk = relatedKinds.has('children') ? runs : columns.has('dottedOrder') ? runsWithoutDottedOrder : [];
    const [members, firstReceived, turns] = await Promise.all([
      runsToWalk.length > 0
        ? readTraceMembers(clickhouse, scope, listDistinctTraceIds(runsToWalk))
        : Promise.resolve(new Map<string, never>()),
      readIfSelected('firstReceived', () => readFirstReceivedTimes(clickhouse, tenantId, runs)),
      readIfSelected('turns', () => readTurnNumbers(clickhouse, scope, traceIds, listThreadIds(rows))),
    ]);
    const wanted = new Set(relatedKinds.has('children') ? runIds : []);
    const trees = new Map([...members].map(([traceId, list]) => [traceId, new TraceTree(list, wanted)]));
    const children = relatedKinds.has('children') ? findChildren(runs, members, trees) : new Map();
    return { rows, rowData: { trees, children, firstReceived, turns } };
  }

  const [{ rows, rowData }, feedbackStats, attachmentUrls, shares, uses, datasets, figures, firstTokens, spans] =
    await Promise.all([
      readRows(),
      readIfSelected('feedbackStats', () => extras.feedbackStats(tenantId, runIds)),
      readIfSelected('attachmentUrls', () => extras.attachmentUrls(tenantId, runIds)),
      readIfSelected('shares', () => extras.shares(tenantId, traceIds)),
      readIfSelected('uses', () => extras.uses(tenantId, runIds)),
      readIfSelected('datasets', () => extras.datasets(tenantId, [...scope.projectIds])),
      readIfSelected('figures', () =>
        sumDescendants(clickhouse, {
          scope,
          traces: '{figure_traces:Array(UUID)}',
          targets: '{figure_targets:Array(UUID)}',
          params: { figure_traces: traceIds, figure_targets: runIds },
          withDetails: columns.has('usageDetails'),
          settings: lookupSettings,
        }),
      ),
      readIfSelected('firstTokens', () => readFirstTokenTimes(clickhouse, scope, traceIds)),
      readIfSelected('spans', () => readTraceTimeRanges(clickhouse, tenantId, traceIds)),
    ]);
  return {
    rows,
    related: {
      tenantId,
      ...rowData,
      feedbackStats,
      attachmentUrls,
      shares,
      uses,
      datasets,
      figures,
      firstTokens,
      spans,
    },
  };
}

function listDistinctTraceIds(runs: readonly Pick<RunKey, 'traceId'>[]): string[] {
  return [...new Set(runs.map((run) => run.traceId))];
}

function listThreadIds(rows: readonly TracedRunRow[]): string[] {
  return [...new Set(rows.flatMap((row) => row.text('threadId') ?? []))];
}

/** Finds the children and descendants of `runs` among the members of their traces. */
function findChildren(
  runs: readonly { readonly runId: string }[],
  members: Members,
  trees: ReadonlyMap<string, TraceTree>,
) {
  const children = new Map(runs.map((run) => [run.runId, { all: [] as string[], direct: [] as string[] }]));
  for (const [traceId, list] of members) {
    for (const member of list) {
      for (const ancestor of trees.get(traceId)?.listWantedAncestorIds(member) ?? [])
        children.get(ancestor)?.all.push(member.runId);
      const parent = member.parentRunId ?? listAncestorIds(member.dottedOrder ?? '').at(-1);
      if (parent !== undefined) children.get(parent)?.direct.push(member.runId);
    }
  }
  return children;
}
