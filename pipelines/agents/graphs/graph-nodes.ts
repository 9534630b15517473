import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { CompiledGraph } from './compiled-graph.ts';

/**
 * Names of a graph's nodes, without the nodes of subgraphs, because LangGraph resolves the node names of a run only in
 * the root graph.
 */
export interface GraphNodes {
  /** Nodes that a breakpoint may name, and that a `Send` may address. */
  readonly names: ReadonlySet<string>;
  /** Nodes that `goto` of a command may name. */
  readonly targets: ReadonlySet<string>;
}

/** The command of a request, with its field names on the wire. */
export type NodeCommand = { readonly goto?: unknown; readonly resume?: unknown } | null | undefined;

/** Breakpoints of a run, with their field names on the wire. */
interface Breakpoints {
  readonly interrupt_before?: '*' | readonly string[] | undefined;
  readonly interrupt_after?: '*' | readonly string[] | undefined;
}

/** Target of `goto` that ends the graph. */
const endNode = '__end__';
const maxListedNodes = 50;

/** Returns the node names of a graph; undefined for a remote graph, whose nodes are not known in this process. */
export function readNodes(graph: CompiledGraph): GraphNodes | undefined {
  const { nodes, channels } = graph as { readonly nodes?: object; readonly channels?: object };
  if (nodes === undefined || channels === undefined) return undefined;
  const names = Object.keys(nodes);
  return { names: new Set(names), targets: new Set(names.filter((name) => `branch:to:${name}` in channels)) };
}

/**
 * Returns one warning for each breakpoint at a node that the graph does not have. Like LangGraph, a run ignores such a
 * breakpoint, because clients may still name a node that was removed from the graph.
 */
export function listUnknownBreakpoints(
  graphId: string,
  { names }: GraphNodes,
  requested: Breakpoints,
): readonly string[] {
  return (['interrupt_before', 'interrupt_after'] as const).flatMap((field) =>
    toList(requested[field])
      .filter((node) => node !== '*' && !names.has(String(node)))
      .map((node) => createUnknownNodeError(graphId, field, node, names).message),
  );
}

/**
 * Checks the nodes of a run command. LangGraph itself ignores a `goto` to an unknown node.
 *
 * @throws GRAPH_NODE_UNKNOWN
 */
export function requireNodes(graphId: string, { names, targets }: GraphNodes, command: NodeCommand): void {
  if (isEndCommand(command)) return;
  for (const to of toList(command?.goto)) {
    const known = isSend(to) ? names : targets;
    const node = isSend(to) ? to.node : to;
    if (!known.has(String(node))) throw createUnknownNodeError(graphId, 'command.goto', node, known);
  }
}

/**
 * Checks the nodes of a command in a state update, in which `goto` may also name `__end__`.
 *
 * @throws GRAPH_NODE_UNKNOWN
 */
export function requireTargets(graphId: string, nodes: GraphNodes, command: NodeCommand): void {
  requireNodes(graphId, nodes, { goto: toList(command?.goto).filter((to) => to !== endNode) });
}

/** Returns true if a command only ends the graph: its single `goto` is `__end__`, and it does not resume. */
export function isEndCommand(command: NodeCommand): boolean {
  const to = toList(command?.goto);
  return to.length === 1 && to[0] === endNode && (command?.resume ?? undefined) === undefined;
}

function toList(value: unknown): readonly unknown[] {
  if (value === undefined || value === null) return [];
  return Array.isArray(value) ? value : [value];
}

/** Returns true if the target is a `Send`: a node with its own input. */
function isSend(to: unknown): to is { readonly node: unknown } {
  return typeof to === 'object' && to !== null && 'node' in to;
}

function createUnknownNodeError(graph: string, field: string, requested: unknown, known: ReadonlySet<string>) {
  const listed = [...known].filter((name) => name !== '__start__');
  const names = listed.slice(0, maxListedNodes).join(', ') + (listed.length > maxListedNodes ? ', …' : '');
  const node = String(typeof requested === 'object' ? JSON.stringify(requested) : requested).slice(0, 200);
  const params = { graph, field, node, known: names === '' ? 'none' : names };
  const { message } = runlakeError('GRAPH_NODE_UNKNOWN', params);
  return runlakeError('GRAPH_NODE_UNKNOWN', params, {
    fields: [{ loc: ['body', ...field.split('.')], msg: message, type: 'graph_node_unknown' }],
  });
}
