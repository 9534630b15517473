import { Annotation, StateGraph } from '@langchain/langgraph';

export const graph = new StateGraph(Annotation.Root({ said: Annotation }))
  .addNode('say', () => ({ said: 'yes' }))
  .addEdge('__start__', 'say')
  .compile();
