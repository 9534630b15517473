import { Annotation, StateGraph } from '@langchain/langgraph';

/** A graph to those who run it, nothing to those who read types. */
export const graph: unknown = new StateGraph(Annotation.Root({ topic: Annotation<string> }))
  .addNode('keep', ({ topic }) => ({ topic }))
  .addEdge('__start__', 'keep')
  .compile();
