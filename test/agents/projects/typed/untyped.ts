import { Annotation, StateGraph } from '@langchain/langgraph';

/** A value that is a graph at run time, but whose types define no schema. */
export const graph: unknown = new StateGraph(Annotation.Root({ topic: Annotation<string> }))
  .addNode('keep', ({ topic }) => ({ topic }))
  .addEdge('__start__', 'keep')
  .compile();
