import { Document } from '@langchain/core/documents';
import { HumanMessage } from '@langchain/core/messages';
import { BaseRetriever } from '@langchain/core/retrievers';
import { tool } from '@langchain/core/tools';
import { Annotation, END, MessagesAnnotation, START, StateGraph } from '@langchain/langgraph';
import { traceable } from 'langsmith/traceable';
import { z } from 'zod';
import { TwoWords } from './model.ts';

/**
 * A graph with nodes, a subgraph, streaming and non-streaming model calls, a tool, a retriever and a function traced by
 * `langsmith`.
 */

class Shelf extends BaseRetriever {
  lc_namespace = ['test'];
  override async _getRelevantDocuments(query: string): Promise<Document[]> {
    return [new Document({ pageContent: `about ${query}`, metadata: { page: 1 } })];
  }
}

const double = tool(async ({ n }) => String(n * 2), {
  name: 'double',
  description: 'doubles',
  schema: z.object({ n: z.number() }),
});
const inner = traceable(async (text: string) => text.length, { name: 'count', run_type: 'tool', tags: ['traced'] });
const outer = traceable(
  async (text: string) => {
    await new TwoWords().invoke([new HumanMessage(text)]);
    return inner(text);
  },
  { name: 'weigh' },
);

const State = Annotation.Root({ ...MessagesAnnotation.spec, found: Annotation<number>() });

const inside = new StateGraph(State)
  .addNode('look', async (state) => {
    const found = await new Shelf().invoke(String(state.messages.at(-1)?.content));
    return { found: found.length };
  })
  .addEdge(START, 'look')
  .addEdge('look', END)
  .compile();

export const graph = new StateGraph(State)
  .addNode('say', async (state) => {
    let last: unknown;
    for await (const chunk of await new TwoWords().stream(state.messages)) last = chunk;
    return last === undefined ? {} : { messages: [{ role: 'ai', content: 'Hello there' }] };
  })
  .addNode('inside', inside)
  .addNode('act', async () => ({ found: Number(await double.invoke({ n: 4 })) + (await outer('four')) }))
  .addEdge(START, 'say')
  .addConditionalEdges('say', () => 'inside', ['inside'])
  .addEdge('inside', 'act')
  .addEdge('act', END)
  .compile();
