import type { Answer } from '../../api/client.ts';
import { parseTime } from '../../components/format.ts';

export type TreeRun = Answer<'get', '/api/v2/traces/{trace_id}/runs'>['items'][number];

/** Fields of the runs of the tree. */
export const treeSelects = [
  'ID',
  'NAME',
  'RUN_TYPE',
  'STATUS',
  'START_TIME',
  'LATENCY_SECONDS',
  'ERROR_PREVIEW',
  'TOTAL_TOKENS',
  'TOTAL_COST',
  'DOTTED_ORDER',
] as const;

export interface TreeNode {
  readonly id: string;
  readonly run: TreeRun;
  /** 0 for the root. */
  readonly depth: number;
  /** Index after the last run below this one. */
  readonly end: number;
  /** Milliseconds since the epoch. */
  readonly startMs: number;
  /** Unset while the run has not ended. */
  readonly endMs: number | undefined;
}

/** The runs of a trace, each followed by the runs below it. */
export interface Tree {
  readonly nodes: readonly TreeNode[];
  readonly startMs: number;
  readonly endMs: number;
  readonly isRunning: boolean;
  readonly indexById: ReadonlyMap<string, number>;
}

/** Builds the tree of a trace from its runs in any order. A run whose parent is missing is below the nearest run above it. */
export function buildTree(runs: readonly TreeRun[]): Tree {
  const sorted = [...runs].sort((a, b) => ((a.dotted_order ?? '') < (b.dotted_order ?? '') ? -1 : 1));
  const depths = sorted.map(({ dotted_order = '' }) => dotted_order.split('.').length - 1);
  const ends = new Array<number>(sorted.length);
  const open: number[] = [];
  for (let index = 0; index <= sorted.length; index++) {
    const depth = depths[index] ?? -1;
    while (open.length > 0 && (depths[open.at(-1) as number] as number) >= depth) ends[open.pop() as number] = index;
    open.push(index);
  }
  const nodes = sorted.map((run, index): TreeNode => {
    const startMs = parseTime(run.start_time ?? '').getTime();
    const { latency_seconds: seconds } = run;
    const endMs = seconds === null || seconds === undefined ? undefined : startMs + Math.max(0, seconds) * 1000;
    return { id: run.id ?? '', run, depth: depths[index] ?? 0, end: ends[index] ?? sorted.length, startMs, endMs };
  });
  let startMs = Number.POSITIVE_INFINITY;
  let endMs = 0;
  for (const node of nodes) {
    startMs = Math.min(startMs, node.startMs);
    endMs = Math.max(endMs, node.endMs ?? node.startMs);
  }
  return {
    nodes,
    startMs,
    endMs,
    isRunning: nodes.some(({ run }) => run.status === 'PENDING'),
    indexById: new Map(nodes.map(({ id }, index) => [id, index])),
  };
}

/**
 * Returns the indexes of the visible nodes: those that are not below a collapsed node or, with a search, the matches
 * and their ancestors.
 */
export function listVisible(tree: Tree, collapsed: ReadonlySet<string>, search: string): readonly number[] {
  const wanted = search.trim().toLowerCase();
  const matches = wanted === '' ? undefined : findMatches(tree, wanted);
  const visible: number[] = [];
  for (let index = 0; index < tree.nodes.length; ) {
    const node = tree.nodes[index] as TreeNode;
    if (matches && !matches.has(index)) index = node.end;
    else {
      visible.push(index);
      index = !matches && collapsed.has(node.id) ? node.end : index + 1;
    }
  }
  return visible;
}

/** Returns the indexes of the nodes that match, and of their ancestors. */
function findMatches(tree: Tree, wanted: string): ReadonlySet<number> {
  const found = new Set<number>();
  const above: number[] = [];
  for (const [index, { run, depth, id }] of tree.nodes.entries()) {
    above.length = depth;
    above[depth] = index;
    const text = `${run.name ?? ''}\n${run.run_type ?? ''}\n${id}\n${run.error_preview ?? ''}`.toLowerCase();
    if (text.includes(wanted)) for (const each of above) if (each !== undefined) found.add(each);
  }
  return found;
}

/** Returns the index of the node above a node; undefined for the root. */
export function findParent(tree: Tree, index: number): number | undefined {
  const depth = tree.nodes[index]?.depth ?? 0;
  for (let at = index - 1; at >= 0; at--) if ((tree.nodes[at]?.depth ?? 0) < depth) return at;
  return undefined;
}
