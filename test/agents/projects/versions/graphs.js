import { tool } from '@langchain/core/tools';
import { Annotation, END, interrupt, START, StateGraph } from '@langchain/langgraph';
import { traceable } from 'langsmith/traceable';
import { z } from 'zod';

/** Graphs that use only what LangGraph has since 1.0. They work with each version of `test/agents/libraries`. */

const State = Annotation.Root({
  name: Annotation(),
  said: Annotation({ reducer: (before, more) => [...before, ...more], default: () => [] }),
});

const upper = tool(async ({ text }) => text.toUpperCase(), {
  name: 'upper',
  description: 'writes in capitals',
  schema: z.object({ text: z.string() }),
});
const count = traceable(async (text) => text.length, { name: 'count', run_type: 'tool' });

const within = new StateGraph(State)
  .addNode('ask', ({ name }) => ({ said: [`answer: ${interrupt(`What, ${name}?`)}`] }))
  .addEdge(START, 'ask')
  .addEdge('ask', END)
  .compile();

/** Streams, calls a tool and a traced function, uses the store, and interrupts in a subgraph. */
export const everything = new StateGraph(State)
  .addNode('greet', async ({ name }, config) => {
    for (let number = 0; number < 3; number += 1) config.writer({ number });
    await config.store.put(['people'], name, { greeted: true });
    return { said: [await upper.invoke({ text: name }), await count(name)] };
  })
  .addNode('within', within)
  .addNode('recall', async ({ name }, { store }) => {
    const item = await store.get(['people'], name);
    return { said: [`greeted: ${item?.value.greeted}`] };
  })
  .addEdge(START, 'greet')
  .addEdge('greet', 'within')
  .addEdge('within', 'recall')
  .addEdge('recall', END)
  .compile();

/** Fails directly after its events. */
export const failing = new StateGraph(State)
  .addNode('fail', async (_, { writer }) => {
    for (let number = 0; number < 50; number += 1) writer({ number });
    throw new Error('as intended');
  })
  .addEdge(START, 'fail')
  .addEdge('fail', END)
  .compile();

/** Stops before its second node, without an interrupt value. */
export const stopping = new StateGraph(State)
  .addNode('first', () => ({ said: ['first'] }))
  .addNode('second', () => ({ said: ['second'] }))
  .addNode('third', () => ({ said: ['third'] }))
  .addEdge(START, 'first')
  .addEdge('first', 'second')
  .addEdge('second', 'third')
  .addEdge('third', END)
  .compile({ interruptBefore: ['second'] });
