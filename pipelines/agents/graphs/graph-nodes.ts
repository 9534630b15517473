import { fault } from '../../../infra/errors/runlake-error.ts';
import type { CompiledGraph } from './compiled-graph.ts';

/**
 * Names of a graph's nodes. Those of graphs within it cannot be named from outside: the library looks for the names that a run gives
 * in the outermost graph alone.
 */
export interface GraphNodes {
  /** Before and after which a run can stop, and which can be sent an input. */
  readonly names: ReadonlySet<string>;
  /** Which a command can go to. */
  readonly targets: ReadonlySet<string>;
}

/** A command of a request, with the names on the wire. */
export type NodeCommand = { readonly goto?: unknown; readonly resume?: unknown } | null | undefined;

/** Where a run is to stop, with the names on the wire. */
interface Breakpoints {
  readonly interrupt_before?: '*' | readonly string[] | undefined;
  readonly interrupt_after?: '*' | readonly string[] | undefined;
}

/** As a target: nothing is to come. */
const end = '__end__';
const mostNamed = 50;

/** Undefined for a graph that is elsewhere, whose nodes are known there. */
export function nodesOf(graph: CompiledGraph): GraphNodes | undefined {
  const { nodes, channels } = graph as { readonly nodes?: object; readonly channels?: object };
  if (nodes === undefined || channels === undefined) return undefined;
  const names = Object.keys(nodes);
  return { names: new Set(names), targets: new Set(names.filter((name) => `branch:to:${name}` in channels)) };
}

/**
 * Breakpoints at nodes that the graph does not have: one text each, that says so. Like the library, a run ignores them, since a graph
 * may lose a node that its clients still name.
 */
export function unknownBreakpoints(graphId: string, { names }: GraphNodes, asked: Breakpoints): readonly string[] {
  return (['interrupt_before', 'interrupt_after'] as const).flatMap((field) =>
    listOf(asked[field])
      .filter((node) => node !== '*' && !names.has(String(node)))
      .map((node) => unknownNode(graphId, field, node, names).message),
  );
}

/**
 * The library ignores a command that goes to a node that does not exist.
 *
 * @throws GRAPH_NODE_UNKNOWN
 */
export function requireNodes(graphId: string, { names, targets }: GraphNodes, command: NodeCommand): void {
  if (goesToEnd(command)) return;
  for (const to of listOf(command?.goto)) {
    const known = isSend(to) ? names : targets;
    const node = isSend(to) ? to.node : to;
    if (!known.has(String(node))) throw unknownNode(graphId, 'command.goto', node, known);
  }
}

/**
 * The same of a command that writes state as a node would, which may also say that nothing is to come.
 *
 * @throws GRAPH_NODE_UNKNOWN
 */
export function requireTargets(graphId: string, nodes: GraphNodes, command: NodeCommand): void {
  requireNodes(graphId, nodes, { goto: listOf(command?.goto).filter((to) => to !== end) });
}

/** Whether a command says that nothing is to come of what waits, and nothing else of where to go. */
export function goesToEnd(command: NodeCommand): boolean {
  const to = listOf(command?.goto);
  return to.length === 1 && to[0] === end && (command?.resume ?? undefined) === undefined;
}

function listOf(value: unknown): readonly unknown[] {
  if (value === undefined || value === null) return [];
  return Array.isArray(value) ? value : [value];
}

/** A node that is sent an input. */
function isSend(to: unknown): to is { readonly node: unknown } {
  return typeof to === 'object' && to !== null && 'node' in to;
}

function unknownNode(graph: string, field: string, asked: unknown, known: ReadonlySet<string>) {
  const shown = [...known].filter((name) => name !== '__start__');
  const names = shown.slice(0, mostNamed).join(', ') + (shown.length > mostNamed ? ', …' : '');
  const node = String(typeof asked === 'object' ? JSON.stringify(asked) : asked).slice(0, 200);
  const params = { graph, field, node, known: names === '' ? 'none' : names };
  const { message } = fault('GRAPH_NODE_UNKNOWN', params);
  return fault('GRAPH_NODE_UNKNOWN', params, {
    fields: [{ loc: ['body', ...field.split('.')], msg: message, type: 'graph_node_unknown' }],
  });
}
