import type { AssistantGraph } from '@langchain/langgraph-sdk';
import { useId, useMemo } from 'react';
import { showInvisible } from '../../components/text.tsx';
import { type GraphEdge, layoutGraph, nodeHeight, nodeWidth } from './graph-layout.ts';

const maxLabel = 20;
const shorten = (text: string) => (text.length > maxLabel ? `${text.slice(0, maxLabel - 1)}…` : text);
/** Larger graphs are only listed. */
const maxNodes = 300;

/** A graph as a drawing and as a list of its edges, which has the same content for the keyboard and screen readers. */
export function GraphDrawing({ graph }: { readonly graph: AssistantGraph }) {
  const arrow = useId();
  const names = useMemo(
    () => graph.nodes.map(({ id, data }) => ({ id: String(id), label: readLabel(String(id), data) })),
    [graph],
  );
  const edges = useMemo(
    () =>
      graph.edges.map(({ source, target, conditional, data }) => ({
        ...{ source: String(source), target: String(target), conditional, data },
      })),
    [graph],
  );
  const drawing = useMemo(() => (names.length > maxNodes ? undefined : layoutGraph(names, edges)), [names, edges]);
  return (
    <div className="stack">
      {drawing && (
        <section className="agents-graph" tabIndex={0} aria-label="Drawing of the graph">
          <svg
            width={drawing.width}
            height={drawing.height}
            viewBox={`0 0 ${drawing.width} ${drawing.height}`}
            role="img"
            aria-label={`Graph of ${names.length} nodes and ${edges.length} edges, listed below`}
          >
            <defs>
              <marker id={arrow} viewBox="0 0 8 8" refX="6" refY="4" markerWidth="8" markerHeight="8" orient="auto">
                <path d="M0 0 8 4 0 8z" className="agents-arrow" />
              </marker>
            </defs>
            {drawing.edges.map(({ from, to, path, isConditional }, index) => (
              <path
                key={`${from.id} ${to.id} ${index}`}
                d={path}
                className={isConditional ? 'agents-edge conditional' : 'agents-edge'}
                markerEnd={`url(#${arrow})`}
              />
            ))}
            {drawing.nodes.map(({ id, label, x, y }) => (
              <g key={id} className={/^__(start|end)__$/.test(id) ? 'agents-node terminal' : 'agents-node'}>
                <title>{showInvisible(label)}</title>
                <rect x={x} y={y} width={nodeWidth} height={nodeHeight} rx="6" />
                <text x={x + nodeWidth / 2} y={y + nodeHeight / 2} dominantBaseline="central" textAnchor="middle">
                  {shorten(showInvisible(label))}
                </text>
              </g>
            ))}
          </svg>
        </section>
      )}
      <details open={drawing === undefined}>
        <summary>
          {names.length} nodes and {edges.length} edges as a list
        </summary>
        <ul className="agents-edges">
          {names.map(({ id, label }) => (
            <li key={id}>
              <code>{showInvisible(label)}</code> {describeTargets(edges.filter(({ source }) => source === id))}
            </li>
          ))}
        </ul>
      </details>
    </div>
  );
}

function readLabel(id: string, data: unknown): string {
  if (id === '__start__') return 'start';
  if (id === '__end__') return 'end';
  const { name } = (typeof data === 'object' && data !== null ? data : {}) as { readonly name?: unknown };
  return typeof name === 'string' && name !== '' && name.length < id.length ? name : id;
}

function describeTargets(edges: readonly GraphEdge[]): string {
  if (edges.length === 0) return 'leads nowhere';
  return `leads to ${edges
    .map(({ target, conditional, data }) => {
      const condition = typeof data === 'string' && data !== '' ? ` (if ${data})` : conditional ? ' (conditional)' : '';
      return showInvisible(`${target.replace(/^__(start|end)__$/, '$1')}${condition}`);
    })
    .join(', ')}`;
}
