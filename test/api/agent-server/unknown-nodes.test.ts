import { Command, Send } from '@langchain/langgraph';
import { RemoteGraph } from '@langchain/langgraph/remote';
import { describe, expect, it } from 'vitest';
import { shareDeployedAgents } from './start-agents-as-deployed.ts';

/**
 * Nodes that a graph does not have: the library ignores them. This server rejects commands to them and warns about
 * breakpoints at them.
 */

const { server, client } = shareDeployedAgents();

const newThread = async () => (await client.threads.create()).thread_id;

/** Creates a thread that is interrupted at `ask`. */
async function interruptedThread(): Promise<string> {
  const threadId = await newThread();
  await client.runs.wait(threadId, 'ask', { input: { question: 'Really?' } });
  return threadId;
}

const refusal = async (method: string, path: string, body: object) => {
  const answer = await server.ask(method, path, body);
  const { code, message, detail } = (await answer.json()) as {
    code: string;
    message: string;
    detail: { loc: string[] }[];
  };
  return { status: answer.status, code, message, loc: detail?.[0]?.loc };
};

describe('unknown nodes of a run', () => {
  const input = { question: 'Really?' };
  it.each<[string, object, string, string]>([
    ['command.goto', { command: { goto: 'nowhere' } }, 'nowhere', 'prepare, ask, finish'],
    ['command.goto', { command: { goto: ['finish', 'nowhere'] } }, 'nowhere', 'prepare, ask, finish'],
    ['command.goto', { command: { goto: { node: 'nowhere', input: {} } } }, 'nowhere', 'prepare, ask, finish'],
    ['command.goto', { command: { goto: [{ lg_name: 'Send', node: 'no', args: {} }] } }, 'no', 'prepare, ask, finish'],
    ['command.goto', { command: { goto: '__start__' } }, '__start__', 'prepare, ask, finish'],
    ['command.goto', { command: { goto: ['__end__', 'finish'] } }, '__end__', 'prepare, ask, finish'],
    ['command.goto', { command: { goto: '__end__', resume: 'yes' } }, '__end__', 'prepare, ask, finish'],
  ])('are rejected: %s %j', async (field, body, node, known) => {
    const threadId = await newThread();
    const message = `body.${field}: Graph 'ask' has no node '${node}' (${field}). Its nodes are: ${known}.`;
    for (const path of [`/threads/${threadId}/runs`, '/runs/wait', `/threads/${threadId}/runs/stream`]) {
      expect(await refusal('POST', path, { assistant_id: 'ask', ...body })).toEqual({
        ...{ status: 422, code: 'GRAPH_NODE_UNKNOWN', message },
        loc: ['body', ...field.split('.')],
      });
    }
    expect(await client.runs.list(threadId)).toEqual([]);
  });

  it('are ignored as breakpoints, with a warning in the stream of each mode', async () => {
    const threadId = await newThread();
    const stops = { interruptBefore: ['ask', 'nowhere'], interruptAfter: ['__end__'] };
    const stream = client.runs.stream(threadId, 'ask', {
      input,
      ...stops,
      streamMode: 'values',
      streamResumable: true,
    });
    const events = [];
    for await (const event of stream) events.push(event);
    const warnings = [
      "Graph 'ask' has no node 'nowhere' (interrupt_before). Its nodes are: prepare, ask, finish.",
      "Graph 'ask' has no node '__end__' (interrupt_after). Its nodes are: prepare, ask, finish.",
    ].map((message) => ({ message }));
    const filterWarnings = (list: readonly { readonly event: string; readonly data: unknown }[]) =>
      list.filter(({ event }) => event === 'warning').map(({ data }) => data);
    expect(filterWarnings(events)).toEqual(warnings);
    expect(await client.threads.getState(threadId)).toMatchObject({ next: ['ask'] });
    const [run] = await client.runs.list(threadId);
    const joined = [];
    for await (const event of client.runs.joinStream(threadId, run!.run_id, {
      lastEventId: '-1',
      streamMode: 'values',
    })) {
      joined.push(event);
    }
    expect(filterWarnings(joined)).toEqual(warnings);
  });

  it('are checked against the outermost graph, as in the library', async () => {
    for (const node of ['inner', 'child:inner', 'child|inner']) {
      const stream = client.runs.stream(null, 'parent', { input: {}, interruptBefore: [node] as never });
      const events = [];
      for await (const event of stream) events.push(event);
      expect(events).toContainEqual(
        expect.objectContaining({ event: 'warning', data: { message: expect.stringContaining('outer, child') } }),
      );
    }
    const threadId = await newThread();
    await client.runs.wait(threadId, 'parent', { input: {}, interruptBefore: ['child'] });
    expect(await client.threads.getState(threadId)).toMatchObject({ next: ['child'] });
  });

  it('do not include `*` and `__start__`', async () => {
    const threadId = await newThread();
    await client.runs.wait(threadId, 'ask', { input, interruptBefore: ['__start__'] });
    expect(await client.threads.getState(threadId)).toMatchObject({ next: ['__start__'] });
    await client.runs.wait(threadId, 'ask', { input: null, interruptAfter: ['*'] as never });
    expect(await client.threads.getState(threadId)).toMatchObject({ next: ['ask'] });
  });

  it('are rejected in a batch', async () => {
    const body = { assistant_id: 'ask', input, command: { goto: 'nowhere' } };
    expect(await refusal('POST', '/runs/batch', [body])).toMatchObject({ status: 422, code: 'GRAPH_NODE_UNKNOWN' });
  });

  it('are rejected in a command that writes state as a node', async () => {
    const buildThreadRequest = (goto: unknown) => {
      const updates = [{ command: { update: { question: 'Well?' }, goto }, as_node: 'prepare' }];
      return { metadata: { graph_id: 'ask' }, supersteps: [{ updates }] };
    };
    for (const goto of ['nowhere', ['finish', { node: 'nowhere', input: {} }]]) {
      expect(await refusal('POST', '/threads', buildThreadRequest(goto))).toMatchObject({
        ...{ status: 422, code: 'GRAPH_NODE_UNKNOWN', message: expect.stringContaining("no node 'nowhere'") },
      });
    }
    for (const goto of ['finish', ['__end__', 'finish']]) {
      const made = await server.ask('POST', '/threads', buildThreadRequest(goto));
      const { thread_id: threadId } = (await made.json()) as { thread_id: string };
      expect((await client.threads.getState(threadId)).next).toContain('finish');
    }
  });

  it('are rejected for a remote subgraph', async () => {
    const graph = new RemoteGraph({ graphId: 'ask', url: server.url, apiKey: server.owner.adminKey });
    const command = new Command({ goto: [new Send('nowhere', {})] });
    await expect(graph.invoke(command)).rejects.toThrow("no node 'nowhere'");
  });

  it('are rejected by the v2 protocol', async () => {
    const threadId = await interruptedThread();
    const [{ id }] = Object.values((await client.threads.get(threadId)).interrupts).flat() as [{ id: string }];
    const params = { interrupt_id: id, response: 'yes', goto: 'nowhere' };
    const answer = await server.ask('POST', `/threads/${threadId}/commands`, {
      id: 1,
      method: 'input.respond',
      params,
    });
    expect(JSON.stringify(await answer.json())).toContain("no node 'nowhere'");
  });

  it('fail the run if its graph is created for each run', async () => {
    const threadId = await newThread();
    const config = { configurable: { node: 'mine' } };
    const stopping = { input: { text: 'a' }, config, interruptBefore: ['plain'] as never };
    const receivedEvents = [];
    for await (const event of client.runs.stream(threadId, 'tailored', stopping)) receivedEvents.push(event);
    expect(receivedEvents).toContainEqual(
      expect.objectContaining({
        ...{ event: 'warning' },
        data: { message: "Graph 'tailored' has no node 'plain' (interrupt_before). Its nodes are: mine." },
      }),
    );
    const stream = client.runs.stream(threadId, 'tailored', { command: { goto: 'plain' }, config });
    const events = [];
    for await (const event of stream) events.push(event);
    expect(events.at(-1)).toMatchObject({ event: 'error', data: { error: 'GraphNodeUnknown' } });
    await client.runs.wait(threadId, 'tailored', { input: { text: 'a' }, config, interruptBefore: ['mine'] });
    expect(await client.threads.get(threadId)).toMatchObject({ status: 'interrupted' });
  });
});

describe('goto of `__end__`', () => {
  it('ends an interrupted run and keeps the state', async () => {
    const threadId = await interruptedThread();
    const events = [];
    const stream = client.runs.stream(threadId, 'ask', { command: { goto: '__end__' }, streamMode: 'values' });
    for await (const event of stream) events.push(event);
    expect(events.map(({ event }) => event)).toEqual(['metadata', 'values']);
    expect(events.at(-1)).toMatchObject({ data: { question: 'Really?' } });
    expect(await client.threads.get(threadId)).toMatchObject({ status: 'idle', interrupts: {} });
    expect(await client.threads.getState(threadId)).toMatchObject({ next: [], values: { question: 'Really?' } });
    // The next run starts over.
    const asked = await client.runs.wait(threadId, 'ask', { input: { question: 'Again?' } });
    expect(asked).toMatchObject({ __interrupt__: [{ value: { question: 'Again?' } }] });
  });

  it('is applied after an update, and from a checkpoint', async () => {
    const threadId = await interruptedThread();
    const command = { update: { answer: 'nobody knows' }, goto: ['__end__'], resume: null } as never;
    expect(await client.runs.wait(threadId, 'ask', { command })).toEqual({
      question: 'Really?',
      answer: 'nobody knows',
    });
    const [, , before] = await client.threads.getHistory(threadId);
    expect(before).toMatchObject({ next: ['ask'] });
    const checkpointId = before?.checkpoint.checkpoint_id as string;
    expect(await client.runs.wait(threadId, 'ask', { command: { goto: '__end__' }, checkpointId })).toEqual({
      question: 'Really?',
    });
    expect(await client.threads.get(threadId)).toMatchObject({ status: 'idle', values: { question: 'Really?' } });
  });
});
