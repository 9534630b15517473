import { Annotation, StateGraph } from '@langchain/langgraph';

export const graph = new StateGraph(Annotation.Root({ seen: Annotation }))
  .addNode('say', () => ({ seen: process.env.FROM_ENV_FILE }))
  .addEdge('__start__', 'say')
  .compile();
export const number = 7;
