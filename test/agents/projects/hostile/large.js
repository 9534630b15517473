import { Annotation, Send, StateGraph } from '@langchain/langgraph';

/** Graphs with ordinary results that are very large. */

const State = Annotation.Root({ n: Annotation, depth: Annotation, fails: Annotation, out: Annotation });

/** Stops before `n` tasks. */
export const fan = new StateGraph(State)
  .addNode('start', () => ({}))
  .addNode('item', () => ({}))
  .addEdge('__start__', 'start')
  .addConditionalEdges('start', ({ n }) => Array.from({ length: n }, () => new Send('item', {})), ['item'])
  .compile({ interruptBefore: ['item'] });

function buildNested(depth) {
  let out = 1;
  for (let level = 0; level < depth; level += 1) out = { next: out };
  return out;
}

/** Returns a state of `depth` levels; if `fails` is set, its last node throws. */
export const nest = new StateGraph(State)
  .addNode('nest', ({ depth }) => ({ out: buildNested(depth) }))
  .addNode('end', ({ fails }) => {
    if (fails) throw new RangeError('on purpose');
    return {};
  })
  .addEdge('__start__', 'nest')
  .addEdge('nest', 'end')
  .compile();

/** Has a subgraph in a node whose name cannot be part of an event name. */
export const nested = new StateGraph(State)
  .addNode(
    'two\nlines',
    new StateGraph(State)
      .addNode('inner', () => ({ n: 2 }))
      .addEdge('__start__', 'inner')
      .compile(),
  )
  .addEdge('__start__', 'two\nlines')
  .compile();
