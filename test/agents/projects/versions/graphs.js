import { tool } from '@langchain/core/tools';
import { Annotation, END, interrupt, START, StateGraph } from '@langchain/langgraph';
import { withLangGraph } from '@langchain/langgraph/zod';
import { Auth } from '@langchain/langgraph-sdk/auth';
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

/** Interrupts. */
export const within = new StateGraph(State)
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

/** Returns the names in the `configurable` that its node receives. */
export const configured = new StateGraph(State)
  .addNode('list', (_, { configurable }) => ({ said: Object.keys(configurable) }))
  .addEdge(START, 'list')
  .addEdge('list', END)
  .compile();

/** A part of the state of `described`, with an extra for its JSON schema. */
export const prompt = withLangGraph(z.string(), { jsonSchemaExtra: { langgraph_type: 'prompt' } });
export const described = new StateGraph(z.object({ prompt, tone: z.string().describe('How to answer.') }))
  .addNode('keep', () => ({}))
  .addEdge(START, 'keep')
  .addEdge('keep', END)
  .compile();

/** Handlers by event, resource and action. */
export const auth = new Auth()
  .authenticate(() => 'ann')
  .on('threads:create', () => ({ by: 'event' }))
  .on('threads', () => ({ by: 'resource' }))
  .on('*:read', () => ({ by: 'action' }))
  .on('*', () => ({ by: 'all' }));
