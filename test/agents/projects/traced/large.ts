import { Annotation, END, START, StateGraph } from '@langchain/langgraph';

/** A graph that returns a large state and a circular state. */

const State = Annotation.Root({ characters: Annotation<number>(), size: Annotation<number>() });

export const graph = new StateGraph(State)
  .addNode('grow', ({ characters }) => {
    const text = 'x'.repeat(characters);
    return { size: text.length, text };
  })
  .addNode('circle', async (_state, config) => {
    const { RunnableLambda } = await import('@langchain/core/runnables');
    const ring: Record<string, unknown> = { big: 10n, seen: new Set([1]) };
    ring.self = ring;
    await RunnableLambda.from(() => 'round')
      .withConfig({ runName: 'ring' })
      .invoke(ring, config);
    return {};
  })
  .addEdge(START, 'grow')
  .addEdge('grow', 'circle')
  .addEdge('circle', END)
  .compile();
