import { Annotation, StateGraph } from '@langchain/langgraph';
import { Client } from '@langchain/langgraph-sdk';
import { getLogger } from '@langchain/langgraph-sdk/logging';

// Created at module level, on import, as in real projects.
const logger = getLogger();

const State = Annotation.Root({ key: Annotation<string>, graphs: Annotation<string[]> });

/** Lists the assistants of its own server, with the API key from its input or without one. */
export const graph = new StateGraph(State)
  .addNode('ask', async ({ key }) => {
    const client = new Client({ apiKey: key, callerOptions: { maxRetries: 0 } });
    const assistants = await client.assistants.search();
    logger.info('asked', { found: assistants.length });
    return { graphs: assistants.map(({ graph_id }) => graph_id).sort() };
  })
  .addEdge('__start__', 'ask')
  .compile();
