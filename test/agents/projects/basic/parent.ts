import { Annotation, interrupt, StateGraph } from '@langchain/langgraph';

const State = Annotation.Root({
  ask: Annotation<boolean>,
  path: Annotation<string[]>({ reducer: (before, more) => [...before, ...more], default: () => [] }),
});

const child = new StateGraph(State)
  .addNode('inner', ({ ask }, config) => {
    config.writer?.({ from: 'inner' });
    return { path: ask ? ['inner', String(interrupt('inside?'))] : ['inner'] };
  })
  .addNode('last', () => ({ path: [] }))
  .addEdge('__start__', 'inner')
  .addEdge('inner', 'last')
  .compile();

/** The node `child` is a graph of its own; with `ask` it stops inside for an answer. */
export const graph = new StateGraph(State)
  .addNode('outer', () => ({ path: ['outer'] }))
  .addNode('child', child)
  .addEdge('__start__', 'outer')
  .addEdge('outer', 'child')
  .compile();
