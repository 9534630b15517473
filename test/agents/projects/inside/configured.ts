import { Annotation, type LangGraphRunnableConfig, StateGraph } from '@langchain/langgraph';

const State = Annotation.Root({
  text: Annotation<string>,
  metadata: Annotation<Record<string, unknown>>,
  configurable: Annotation<Record<string, unknown>>,
});

/** Returns the metadata and the configurable values that its node receives. */
export const graph = new StateGraph(State)
  .addNode('look', (_state, { metadata = {}, configurable = {} }: LangGraphRunnableConfig) => ({
    metadata,
    configurable: Object.fromEntries(Object.entries(configurable).filter(([name]) => !name.startsWith('__'))),
  }))
  .addEdge('__start__', 'look')
  .compile();
