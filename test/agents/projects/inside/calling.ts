import { Annotation, StateGraph } from '@langchain/langgraph';
import { Client } from '@langchain/langgraph-sdk';
import { getLogger } from '@langchain/langgraph-sdk/logging';

// As projects have it: beside the graph, when the module is imported.
const logger = getLogger();

const State = Annotation.Root({ key: Annotation<string>, graphs: Annotation<string[]> });

/** Asks its own server for its assistants, with the key of its input or with none. */
export const graph = new StateGraph(State)
  .addNode('ask', async ({ key }) => {
    const client = new Client({ apiKey: key, callerOptions: { maxRetries: 0 } });
    const assistants = await client.assistants.search();
    logger.info('asked', { found: assistants.length });
    return { graphs: assistants.map(({ graph_id }) => graph_id).sort() };
  })
  .addEdge('__start__', 'ask')
  .compile();
