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

/** What a request says of nodes, with the names on the wire. */
export interface NamedNodes {
  readonly interrupt_before?: string | readonly string[] | null | undefined;
  readonly interrupt_after?: string | readonly string[] | null | undefined;
  readonly command?: { readonly goto?: unknown; readonly resume?: unknown } | null | undefined;
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
 * The library passes over the name of a node that is not there, without a word.
 *
 * @throws GRAPH_NODE_UNKNOWN
 */
export function requireNodes(graphId: string, { names, targets }: GraphNodes, asked: NamedNodes): void {
  for (const field of ['interrupt_before', 'interrupt_after'] as const) {
    for (const node of listOf(asked[field])) {
      if (node !== '*' && !names.has(node as string)) throw unknownNode(graphId, field, node, names);
    }
  }
  const { command } = asked;
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
export function requireTargets(graphId: string, nodes: GraphNodes, command: NamedNodes['command']): void {
  requireNodes(graphId, nodes, { command: { goto: listOf(command?.goto).filter((to) => to !== end) } });
}

/** Whether a command says that nothing is to come of what waits, and nothing else of where to go. */
export function goesToEnd(command: NamedNodes['command']): boolean {
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
