/** A layered drawing of a graph. Edges lead to lower layers, except those that close a cycle. */
export interface DrawnNode {
  readonly id: string;
  readonly label: string;
  readonly x: number;
  readonly y: number;
}
export interface DrawnEdge {
  readonly from: DrawnNode;
  readonly to: DrawnNode;
  readonly isConditional: boolean;
  /** Path of the line, in SVG. */
  readonly path: string;
}
export interface Drawing {
  readonly nodes: readonly DrawnNode[];
  readonly edges: readonly DrawnEdge[];
  readonly width: number;
  readonly height: number;
}
export interface GraphEdge {
  readonly source: string;
  readonly target: string;
  readonly conditional?: boolean | undefined;
  readonly data?: unknown;
}

export const nodeWidth = 150;
export const nodeHeight = 34;
const gapX = 30;
const gapY = 44;
const margin = 20;
/** Space on the right for edges that lead back to a higher layer. */
const returnWidth = 18;

export function layoutGraph(
  names: readonly { readonly id: string; readonly label: string }[],
  edges: readonly GraphEdge[],
): Drawing {
  const back = findBackEdges(
    names.map(({ id }) => id),
    edges,
  );
  const layers = assignLayers(
    names.map(({ id }) => id),
    edges.filter((edge) => !back.has(edge)),
  );
  const rows = new Map<number, { readonly id: string; readonly label: string }[]>();
  for (const name of names) {
    const layer = layers.get(name.id) ?? 0;
    rows.set(layer, [...(rows.get(layer) ?? []), name]);
  }
  const widest = Math.max(1, ...[...rows.values()].map((row) => row.length));
  const innerWidth = widest * nodeWidth + (widest - 1) * gapX;
  const nodes = new Map<string, DrawnNode>();
  for (const [layer, row] of rows) {
    const rowWidth = row.length * nodeWidth + (row.length - 1) * gapX;
    for (const [index, { id, label }] of row.entries())
      nodes.set(id, {
        ...{ id, label },
        x: margin + (innerWidth - rowWidth) / 2 + index * (nodeWidth + gapX),
        y: margin + layer * (nodeHeight + gapY),
      });
  }
  const right = margin + innerWidth;
  let returns = 0;
  const drawn = edges.flatMap((edge): DrawnEdge[] => {
    const [from, to] = [nodes.get(edge.source), nodes.get(edge.target)];
    if (from === undefined || to === undefined) return [];
    const isReturn = back.has(edge) || from.y >= to.y;
    if (isReturn) returns += 1;
    return [
      {
        ...{ from, to, isConditional: edge.conditional === true },
        path: isReturn ? drawReturn(from, to, right + returns * returnWidth) : drawDown(from, to),
      },
    ];
  });
  const height = 2 * margin + rows.size * nodeHeight + Math.max(0, rows.size - 1) * gapY;
  return { nodes: [...nodes.values()], edges: drawn, width: right + margin + returns * returnWidth, height };
}

function findBackEdges(ids: readonly string[], edges: readonly GraphEdge[]): ReadonlySet<GraphEdge> {
  const back = new Set<GraphEdge>();
  const state = new Map<string, 'open' | 'done'>();
  const outgoing = Map.groupBy(edges, ({ source }) => source);
  const visit = (id: string): void => {
    state.set(id, 'open');
    for (const edge of outgoing.get(id) ?? []) {
      const target = state.get(edge.target);
      if (target === 'open') back.add(edge);
      else if (target === undefined) visit(edge.target);
    }
    state.set(id, 'done');
  };
  for (const id of ids) if (!state.has(id)) visit(id);
  return back;
}

/** The layer of a node is the length of the longest path to it. `edges` must have no cycle. */
function assignLayers(ids: readonly string[], edges: readonly GraphEdge[]): ReadonlyMap<string, number> {
  const layers = new Map(ids.map((id) => [id, 0]));
  for (let round = 0; round < ids.length; round += 1) {
    let isStable = true;
    for (const { source, target } of edges) {
      const least = (layers.get(source) ?? 0) + 1;
      if ((layers.get(target) ?? 0) >= least) continue;
      layers.set(target, least);
      isStable = false;
    }
    if (isStable) break;
  }
  return layers;
}

function drawDown(from: DrawnNode, to: DrawnNode): string {
  const [x1, y1] = [from.x + nodeWidth / 2, from.y + nodeHeight];
  const [x2, y2] = [to.x + nodeWidth / 2, to.y];
  const middle = (y1 + y2) / 2;
  return `M${x1} ${y1}C${x1} ${middle} ${x2} ${middle} ${x2} ${y2 - 6}`;
}

function drawReturn(from: DrawnNode, to: DrawnNode, x: number): string {
  const [y1, y2] = [from.y + nodeHeight / 2, to.y + nodeHeight / 2];
  return `M${from.x + nodeWidth} ${y1}C${x} ${y1} ${x} ${y2} ${to.x + nodeWidth + 6} ${y2}`;
}
