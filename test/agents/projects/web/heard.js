import { Annotation, StateGraph } from '@langchain/langgraph';

/** Returns the headers of the request that the graph received. */
export const graph = new StateGraph(Annotation.Root({ heard: Annotation() }))
  .addNode('hear', (_state, { configurable }) => ({
    heard: Object.fromEntries(
      Object.entries(configurable).filter(([name]) => /^(?:x-|user-agent|accept|auth|cookie)/.test(name)),
    ),
  }))
  .addEdge('__start__', 'hear')
  .compile();
