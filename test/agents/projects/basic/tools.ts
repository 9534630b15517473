import { AIMessage } from '@langchain/core/messages';
import { tool } from '@langchain/core/tools';
import { MessagesAnnotation, StateGraph } from '@langchain/langgraph';
import { ToolNode } from '@langchain/langgraph/prebuilt';
import { z } from 'zod';

const add = tool(({ a, b }) => String(a + b), {
  name: 'add',
  description: 'Adds two numbers',
  schema: z.object({ a: z.number(), b: z.number() }),
});

/** Calls the tool `add` once with 1 and 2. */
export const graph = new StateGraph(MessagesAnnotation)
  .addNode('model', () => ({
    messages: [new AIMessage({ content: '', tool_calls: [{ id: 'call-1', name: 'add', args: { a: 1, b: 2 } }] })],
  }))
  .addNode('tools', new ToolNode([add]))
  .addEdge('__start__', 'model')
  .addEdge('model', 'tools')
  .compile();
