/** Source of a deployment whose graphs need no model: tool calls, an interrupt, tokens that arrive slowly, and errors. */
const hostileText = '<img src=x onerror="document.title=1"> \u202egnp.exe';

export const supportAnswer =
  'The refund of 42 euros for the order A-1007 is on its way and will be in your account within three days.';

export const agentSource: Readonly<Record<string, string>> = {
  'langgraph.json': JSON.stringify({
    graphs: {
      support: { path: './graphs.js:support', description: 'Refunds orders, and asks before it does' },
      trip: './graphs.js:trip',
      odd: './graphs.js:odd',
      survey: './graphs.js:survey',
    },
    env: '.env',
  }),
  'package.json': JSON.stringify({ name: 'agents', version: '1.0.0', type: 'module' }),
  'graphs.js': `import { setTimeout as pause } from 'node:timers/promises';
import { AIMessage, ToolMessage } from '@langchain/core/messages';
import { FakeListChatModel } from '@langchain/core/utils/testing';
import { Annotation, interrupt, MessagesAnnotation, StateGraph } from '@langchain/langgraph';

console.log('the graphs are loaded');
const model = new FakeListChatModel({ responses: [${JSON.stringify(supportAnswer)}], sleep: 25 });
export const support = new StateGraph(MessagesAnnotation)
  .addNode('plan', () => ({
    messages: [
      new AIMessage({ content: '', tool_calls: [{ id: 'call-1', name: 'find_order', args: { order: 'A-1007' } }] }),
    ],
  }))
  .addNode('tools', () => ({
    messages: [new ToolMessage({ tool_call_id: 'call-1', name: 'find_order', content: '{"price": 42}' })],
  }))
  .addNode('approve', () => {
    const answer = interrupt({ question: 'Refund 42 euros?' });
    return { messages: [{ role: 'user', content: 'The supervisor says: ' + JSON.stringify(answer) }] };
  })
  .addNode('reply', async ({ messages }, config) => ({ messages: [await model.invoke(messages, config)] }))
  .addEdge('__start__', 'plan')
  .addEdge('plan', 'tools')
  .addConditionalEdges('tools', () => 'approve', ['approve', 'plan'])
  .addEdge('approve', 'reply')
  .addEdge('reply', '__end__')
  .compile();

const Trip = Annotation.Root({ city: Annotation, days: Annotation, plan: Annotation, gate: Annotation });
export const trip = new StateGraph(Trip)
  .addNode('propose', async ({ city, gate }, config) => {
    console.log('a trip to ' + city);
    for (let day = 1; day <= 5; day += 1) {
      config.writer({ day });
      await pause(50);
      // The test responds when the run may continue.
      if (day === 3 && gate) await fetch(gate);
    }
    return { days: 5, plan: 'Five days in ' + city };
  })
  .addNode('check', ({ city }) => {
    if (city === 'nowhere') throw new Error('There is no such city: ' + city);
    return {};
  })
  .addEdge('__start__', 'propose')
  .addEdge('propose', 'check')
  .addEdge('check', '__end__')
  .compile();

export const odd = new StateGraph(MessagesAnnotation)
  .addNode('say', () => ({ messages: [new AIMessage(${JSON.stringify(hostileText)})] }))
  .addEdge('__start__', 'say')
  .compile();

const Survey = Annotation.Root({ answers: Annotation });
export const survey = new StateGraph(Survey)
  .addNode('ask', () => ({ answers: [interrupt('Your name?'), interrupt('Your city?')] }))
  .addEdge('__start__', 'ask')
  .compile();
`,
};

/** The same graphs, with authentication of their own. */
export const guardedSource: Readonly<Record<string, string>> = {
  ...agentSource,
  'langgraph.json': JSON.stringify({ graphs: { trip: './graphs.js:trip' }, auth: { path: './auth.js:auth' } }),
  'auth.js': `import { Auth, HTTPException } from '@langchain/langgraph-sdk/auth';
export const auth = new Auth().authenticate(async (request) => {
  if (request.headers.get('authorization') !== 'Bearer open sesame')
    throw new HTTPException(401, { message: 'Say the words.' });
  return { identity: 'ada', permissions: [] };
});
`,
};
