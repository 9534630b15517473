import { Command, Send } from '@langchain/langgraph';
import { RemoteGraph } from '@langchain/langgraph/remote';
import { expect, it } from 'vitest';
import { forSuite } from '../../for-suite.ts';
import { startAgentServer } from './start-agent-server.ts';

/** The library's client for a remote graph, as a graph uses it for a remote subgraph. */

const server = forSuite(() => startAgentServer());

const remote = (graphId: string) =>
  new RemoteGraph({ graphId, url: server.url, apiKey: server.owner.adminKey, streamResumable: true });
const onThread = async () => ({ configurable: { thread_id: (await server.client.threads.create()).thread_id } });

it('invokes, streams, interrupts, resumes with a reply, and reads state and history', async () => {
  const graph = remote('ask');
  const config = await onThread();
  const parts: unknown[] = [];
  const streaming = async () => {
    for await (const part of await graph.stream({ question: 'Go?' }, { ...config, streamMode: 'updates' })) {
      parts.push(part);
    }
  };
  // The exception makes a graph that uses this one as a node stop, too.
  await expect(streaming()).rejects.toMatchObject({ interrupts: [{ value: { question: 'Go?' } }] });
  expect(parts).toMatchObject([{ prepare: { question: 'Go?' } }]);

  // An event raised the exception; the run ends after that event.
  await expect.poll(async () => (await graph.getState(config)).next).toEqual(['ask']);
  const before = await graph.getState(config);
  expect(before).toMatchObject({ next: ['ask'], values: { question: 'Go?' } });
  expect(before.tasks[0]?.interrupts).toMatchObject([{ value: { question: 'Go?' } }]);

  expect(await graph.invoke(new Command({ resume: 'yes' }), config)).toMatchObject({ result: 'answered: yes' });
  const states = [];
  for await (const state of graph.getStateHistory(config)) states.push(state);
  expect(states.map(({ next }) => next[0])).toEqual([undefined, 'finish', 'ask', 'prepare', '__start__']);

  await graph.updateState(config, { result: 'changed' }, 'finish');
  expect(await graph.getState(config)).toMatchObject({ values: { result: 'changed' } });
});

it('sends the input of the caller to a node', async () => {
  const state = await remote('ask').invoke(
    new Command({ goto: [new Send('finish', { answer: 'sent' })] }),
    await onThread(),
  );
  expect(state).toMatchObject({ result: 'answered: sent' });
});

it('streams several modes and parts of subgraphs, and raises the error of the graph', async () => {
  const modes = new Set<unknown>();
  const stream = await remote('parent').stream({}, { streamMode: ['updates', 'custom'], subgraphs: true });
  for await (const [namespace, mode] of stream as AsyncIterable<[string[], string]>) {
    modes.add(`${namespace.length} ${mode}`);
  }
  expect(modes).toContain('0 updates');
  expect(modes).toContain('1 custom');
  await expect(remote('misbehave').invoke({ how: 'fail' })).rejects.toThrow('the node failed on purpose');
});

it('streams on after an event that is too large, and raises an error if this is the result', async () => {
  const graph = remote('misbehave');
  const stream = await graph.stream({ how: 'large' }, { streamMode: ['custom', 'updates'] });
  const parts: unknown[] = [];
  for await (const part of stream) parts.push(part);
  expect(parts).toEqual([
    ['custom', { doing: 'large' }],
    ['updates', { deed: { done: true } }],
  ]);
  const config = await onThread();
  await expect(graph.invoke({ how: 'large-state' }, config)).rejects.toThrow('EventTooLarge');
  const { thread_id: threadId } = config.configurable;
  await expect.poll(async () => (await server.client.threads.get(threadId)).status, { timeout: 20_000 }).toBe('idle');
  expect((await graph.getState(config)).values.text).toHaveLength(9 * 1024 * 1024);
});

it('draws its graph', async () => {
  const { nodes, edges } = await remote('ask').getGraphAsync();
  expect(Object.keys(nodes)).toEqual(expect.arrayContaining(['__start__', 'prepare', 'ask', 'finish']));
  expect(edges).toContainEqual(expect.objectContaining({ source: 'prepare', target: 'ask' }));
});
