import { StateGraph } from '@langchain/langgraph';
import { z } from 'zod';

/** A graph whose schemas are known at run time, so nothing has to be read from its types. */
export const graph = new StateGraph(z.object({ topic: z.string() }))
  .addNode('keep', ({ topic }) => ({ topic }))
  .addEdge('__start__', 'keep')
  .compile();
