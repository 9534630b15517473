import { Annotation, StateGraph } from '@langchain/langgraph';

/** JavaScript: there are no types to read. */
export const graph = new StateGraph(Annotation.Root({ topic: Annotation }))
  .addNode('keep', ({ topic }) => ({ topic }))
  .addEdge('__start__', 'keep')
  .compile();
