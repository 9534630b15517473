import { Annotation, StateGraph } from '@langchain/langgraph';

/** Says which headers of its request it got. */
export const graph = new StateGraph(Annotation.Root({ heard: Annotation() }))
  .addNode('hear', (_state, { configurable }) => ({
    heard: Object.fromEntries(
      Object.entries(configurable).filter(([name]) => /^(?:x-|user-agent|accept|auth|cookie)/.test(name)),
    ),
  }))
  .addEdge('__start__', 'hear')
  .compile();
