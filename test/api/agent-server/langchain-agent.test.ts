import { expect, test } from 'vitest';
import { forSuite } from '../../for-suite.ts';
import { startAgentServer } from './start-agent-server.ts';

/** Agents of the package `langchain`, which wrap a graph in their own class. */

const server = forSuite(() => startAgentServer({ project: 'langchain' }));

const input = { messages: [{ role: 'user', content: 'How is it in Lyon?' }] };

test('an agent interrupts before it calls a tool, and resumes with the decision', async () => {
  const { threads, runs, assistants } = server.client;
  const { thread_id: threadId } = await threads.create();
  expect(await runs.wait(threadId, 'agent', { input })).toMatchObject({
    __interrupt__: [{ value: { actionRequests: [{ name: 'weather', args: { city: 'Lyon' } }] } }],
  });
  expect(await threads.get(threadId)).toMatchObject({ status: 'interrupted' });
  const updatedNodes: string[] = [];
  for await (const { event, data } of runs.stream(threadId, 'agent', {
    command: { resume: { decisions: [{ type: 'approve' }] } },
    streamMode: ['updates', 'messages-tuple'],
  })) {
    if (event === 'updates') updatedNodes.push(...Object.keys(data));
  }
  expect(updatedNodes).toEqual(expect.arrayContaining(['tools', 'model_request']));
  expect((await threads.getState(threadId)).values).toMatchObject({
    messages: [{ type: 'human' }, { type: 'ai' }, { type: 'tool' }, { type: 'ai', content: 'I heard: sun over Lyon' }],
  });
  const { nodes } = await assistants.getGraph('agent');
  expect(nodes.map(({ id }) => id)).toEqual(expect.arrayContaining(['model_request', 'tools']));
  expect((await assistants.getSchemas('agent')).input_schema).toMatchObject({ properties: { messages: {} } });
});

test('a function may return an agent', async () => {
  expect(await server.client.runs.wait(null, 'made', { input })).toMatchObject({
    messages: [{ type: 'human' }, { type: 'ai' }, { type: 'tool' }, { content: 'I heard: sun over Lyon' }],
  });
});
