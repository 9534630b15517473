import { StateGraph } from '@langchain/langgraph';
import { z } from 'zod';

const State = z.object({ topic: z.string(), joke: z.string().optional() });
const Context = z.object({ tone: z.enum(['dry', 'warm']).optional() });

/** A graph whose schemas are known at run time. */
export const graph = new StateGraph(State, {
  context: Context,
  input: State.pick({ topic: true }),
  output: State.pick({ joke: true }),
})
  .addNode('write', (state, { context }) => ({ joke: `a ${context?.tone ?? 'plain'} joke about ${state.topic}` }))
  .addEdge('__start__', 'write')
  .compile();
