import { Annotation, StateGraph } from '@langchain/langgraph';

export const graph = new StateGraph(Annotation.Root({ text: Annotation() }))
  .addNode('say', () => ({ text: 'said' }))
  .addEdge('__start__', 'say')
  .compile();
