import { Annotation, InMemoryStore, StateGraph } from '@langchain/langgraph';

const State = Annotation.Root({
  write: Annotation(),
  query: Annotation(),
  found: Annotation(),
});

const builder = new StateGraph(State)
  .addNode('remember', async ({ write = {} }, { store }) => {
    for (const [key, text] of Object.entries(write)) await store.put(['notes'], key, { text });
  })
  .addNode('recall', async ({ query }, { store }) => {
    const items = await store.search(['notes'], query === undefined ? {} : { query });
    return { found: items.map(({ key, value, score }) => ({ key, text: value.text, ranked: score !== undefined })) };
  })
  .addEdge('__start__', 'remember')
  .addEdge('remember', 'recall');

/** Stores `write`, {key: text}, and reads the items of all runs, nearest to `query` first. */
export const graph = builder.compile();

/** Compiled with its own store. */
export const own = builder.compile({ store: new InMemoryStore() });
