import { StateGraph } from '@langchain/langgraph';
import { z } from 'zod';

/** Known at run time, so that nothing is to be read from its types. */
export const graph = new StateGraph(z.object({ topic: z.string() }))
  .addNode('keep', ({ topic }) => ({ topic }))
  .addEdge('__start__', 'keep')
  .compile();
