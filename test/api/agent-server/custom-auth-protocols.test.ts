import { type Message, Role, type Task, TaskState } from '@a2a-js/sdk';
import { LegacyJsonRpcTransport } from '@a2a-js/sdk/compat/v0_3/client';
import { Client } from '@langchain/langgraph-sdk';
import { Client as McpClient } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { WebSocket } from 'undici';
import { describe, expect, it } from 'vitest';
import { forSuite } from '../../for-suite.ts';
import { startAgentServer } from './start-agent-server.ts';

/**
 * MCP, A2A and the v2 protocol with custom authentication of a project, each through its official client, as the users
 * Ada and Ben.
 */
const server = forSuite(() =>
  startAgentServer({ project: 'auth', config: { agentsCorsOrigins: 'https://ours.example' } }),
);

const bearer = (name: string) => ({ authorization: `Bearer secret-${name}` });
const clientOf = (name: string) =>
  new Client({
    apiUrl: server.url,
    apiKey: null as never,
    defaultHeaders: bearer(name),
    callerOptions: { maxRetries: 0 },
  });

describe('MCP', () => {
  async function connect(name: string): Promise<McpClient> {
    const client = new McpClient({ name: 'test', version: '1' });
    const transport = new StreamableHTTPClientTransport(new URL(`${server.url}/mcp`), {
      requestInit: { headers: bearer(name) },
    });
    await client.connect(transport as Parameters<McpClient['connect']>[0]);
    return client;
  }
  const listToolNames = async (client: McpClient) => (await client.listTools()).tools.map(({ name }) => name).sort();

  it("lists the graphs and the caller's assistants as tools, and runs them as the caller", async () => {
    const { assistant_id } = await clientOf('ada').assistants.create({ graphId: 'echo', name: 'adas' });
    // Metadata of a client does not turn an assistant into a system assistant.
    await clientOf('ada').assistants.create({ graphId: 'echo', name: 'posing', metadata: { created_by: 'system' } });
    const [ada, ben] = await Promise.all(['ada', 'ben'].map(connect));
    expect(await listToolNames(ada!)).toEqual(['adas', 'ask', 'echo', 'posing', 'steps']);
    expect(await listToolNames(ben!)).toEqual(['ask', 'echo', 'steps']);
    for (const name of ['adas', 'echo']) {
      const { structuredContent } = await ada!.callTool({ name, arguments: {} });
      expect(structuredContent).toMatchObject({ user: { id: 'ada', user: { plan: 'free' } } });
    }
    expect((await ben!.callTool({ name: 'echo', arguments: {} })).structuredContent).toMatchObject({
      user: { id: 'ben' },
    });
    for (const name of ['adas', assistant_id, 'nothing at all']) {
      await expect(ben!.callTool({ name, arguments: {} })).rejects.toMatchObject({ code: -32602 });
    }
    // A batch of calls: access is checked for each call.
    const calls = [1, 2].map((id) => ({
      ...{ jsonrpc: '2.0', id, method: 'tools/call' },
      params: { name: 'echo', arguments: {} },
    }));
    const headers = { accept: 'application/json, text/event-stream', 'content-type': 'application/json' };
    const response = await fetch(`${server.url}/mcp`, {
      method: 'POST',
      headers: { ...headers, ...bearer('ben') },
      body: JSON.stringify(calls),
    });
    const answers = (await response.json()) as { result: { structuredContent: { user: { id: string } } } }[];
    expect(answers.map(({ result }) => result.structuredContent.user.id)).toEqual(['ben', 'ben']);
    await Promise.all([ada!.close(), ben!.close()]);
  });

  it('is rejected for an unknown user and for one without permissions', async () => {
    const nobody = await connect('nobody');
    await expect(nobody.listTools()).rejects.toMatchObject({ code: -32600 });
    await expect(nobody.callTool({ name: 'echo', arguments: {} })).rejects.toMatchObject({ code: -32600 });
    await nobody.close();
    await expect(connect('banned')).rejects.toThrow('not for you');
  });
});

describe('A2A', () => {
  const createTransport = (name: string, assistant = 'ask') =>
    new LegacyJsonRpcTransport({
      endpoint: `${server.url}/a2a/${assistant}`,
      fetchImpl: (url, init) => fetch(url, { ...init, headers: { ...init?.headers, ...bearer(name) } }),
    });
  const sendParams = (value: object, more: object = {}) => {
    const parts = [{ content: { $case: 'data', value } }];
    const location = { contextId: '', taskId: '', extensions: [], ...more };
    const message = { messageId: 'm1', role: Role.ROLE_USER, parts, ...location } as unknown as Message;
    return { tenant: '', message, configuration: undefined, metadata: undefined };
  };
  const read = (name: string, id: string) => createTransport(name).getTask({ tenant: '', id, historyLength: 1 });

  it('gives access to a task and its context only to their owner', async () => {
    const ada = createTransport('ada');
    const asked = (await ada.sendMessage(sendParams({ question: 'Sure?' }))) as Task;
    expect(asked.status?.state).toBe(TaskState.TASK_STATE_INPUT_REQUIRED);
    expect((await clientOf('ada').threads.get(asked.contextId)).metadata).toMatchObject({ owner: 'ada' });

    const ben = createTransport('ben');
    await expect(read('ben', asked.id)).rejects.toThrow('There is no run');
    const location = { contextId: asked.contextId, taskId: asked.id };
    for (const more of [location, { taskId: asked.id }]) {
      await expect(ben.sendMessage(sendParams({ resume: 'stolen' }, more))).rejects.toThrow('There is no run');
    }
    await expect(ben.sendMessage(sendParams({ question: 'Mine?' }, { contextId: asked.contextId }))).rejects.toThrow(
      'There is no thread',
    );
    const forbiddenStream = ben.sendMessageStream(sendParams({ question: 'Mine?' }, { contextId: asked.contextId }));
    await expect(forbiddenStream.next()).rejects.toThrow('There is no thread');

    expect((await read('ada', asked.id)).status?.state).toBe(TaskState.TASK_STATE_INPUT_REQUIRED);
    const done = (await ada.sendMessage(sendParams({ resume: 'yes' }, location))) as Task;
    expect(done.artifacts[0]?.parts).toMatchObject([{ content: { value: { result: 'answered: yes' } } }]);
    const mine = (await ben.sendMessage(sendParams({ question: 'Mine?' }))) as Task;
    expect(mine.status?.state).toBe(TaskState.TASK_STATE_INPUT_REQUIRED);
  });

  it('gives access to an assistant and its card only to their owner, and to system assistants to all users', async () => {
    const { assistant_id } = await clientOf('ada').assistants.create({ graphId: 'echo', name: 'okapi' });
    const card = async (name: string, assistant: string) => {
      const path = `/.well-known/agent-card.json?assistant_id=${assistant}`;
      const response = await fetch(server.url + path, { headers: bearer(name) });
      return { status: response.status, card: (await response.json()) as object };
    };
    expect(await card('ada', assistant_id)).toMatchObject({ status: 200, card: { name: 'okapi' } });
    // Only the project knows which credentials its clients must send.
    expect((await card('ada', assistant_id)).card).not.toHaveProperty('securitySchemes');
    expect((await card('ben', assistant_id)).status).toBe(404);
    expect((await card('ben', 'ask')).status).toBe(200);
    expect((await card('nobody', 'ask')).status).toBe(403);
    await expect(createTransport('ben', assistant_id).sendMessage(sendParams({}))).rejects.toThrow('404');
    const answered = (await createTransport('ada', assistant_id).sendMessage(sendParams({}))) as Task;
    expect(answered.artifacts[0]?.parts).toMatchObject([{ content: { value: { user: { id: 'ada' } } } }]);
    await expect(createTransport('nobody').sendMessage(sendParams({}))).rejects.toThrow('403');
  });
});

it('the v2 protocol over server-sent events runs a graph on a new thread', async () => {
  const stream = clientOf('ada').threads.stream({ assistantId: 'echo', transport: 'sse' });
  await stream.run.start({ input: {} });
  expect(await stream.output).toMatchObject({ user: { id: 'ada' } });
  await stream.close();
  expect((await clientOf('ada').threads.get(stream.threadId)).metadata).toMatchObject({ owner: 'ada' });
});

describe('a WebSocket of the v2 protocol', () => {
  const buildThreadUrl = (threadId: string) => `${server.url.replace('http', 'ws')}/threads/${threadId}/stream/events`;
  const openThreadStream = (name: string, threadId?: string) => {
    const webSocketFactory = (url: string) => new WebSocket(url, { headers: bearer(name) }) as never;
    const client = new Client({ apiUrl: server.url, apiKey: null as never, callerOptions: { maxRetries: 0 } });
    const options = { assistantId: 'ask', transport: 'websocket', webSocketFactory } as const;
    return threadId ? client.threads.stream(threadId, options) : client.threads.stream(options);
  };
  /** Opens a socket and sends `commands` in order; returns undefined if the handshake is rejected. */
  async function sendCommands(name: string, threadId: string, commands: readonly object[]) {
    const socket = new WebSocket(buildThreadUrl(threadId), { headers: bearer(name) });
    const answers: unknown[] = [];
    const done = new Promise<unknown[] | undefined>((resolve) => {
      socket.addEventListener('error', () => resolve(undefined));
      socket.addEventListener('open', () => {
        for (const [id, command] of commands.entries()) socket.send(JSON.stringify({ id, ...command }));
      });
      socket.addEventListener('message', ({ data }) => {
        answers.push(JSON.parse(String(data)));
        if (answers.length === commands.length) resolve(answers);
      });
    });
    const answered = await done;
    socket.close();
    return answered;
  }

  it('runs a graph for the user of its handshake', async () => {
    const stream = openThreadStream('ada');
    await stream.run.start({ input: { question: 'Sure?' } });
    await expect.poll(() => stream.interrupts.length, { timeout: 10_000 }).toBe(1);
    expect((await clientOf('ada').threads.get(stream.threadId)).metadata).toMatchObject({ owner: 'ada' });
    await stream.input.respond({ namespace: [], interrupt_id: stream.interrupts[0]!.interruptId, response: 'yes' });
    await expect
      .poll(async () => (await clientOf('ada').threads.get(stream.threadId)).values)
      .toMatchObject({ result: 'answered: yes' });
    await stream.close();
  });

  it('rejects the handshake of an unauthenticated user', async () => {
    const { thread_id } = await clientOf('ada').threads.create();
    expect(await sendCommands('banned', thread_id, [{ method: 'state.get', params: {} }])).toBeUndefined();
    expect(await sendCommands('dying', thread_id, [{ method: 'state.get', params: {} }])).toBeUndefined();
    await expect
      .poll(async () => (await clientOf('ada').threads.get(thread_id)).status, { timeout: 20_000 })
      .toBe('idle');
  });

  it('rejects pages of other origins, whose browser would send the cookies of its user', async () => {
    const { thread_id } = await clientOf('ada').threads.create();
    const canOpen = async (headers: Record<string, string>) => {
      const socket = new WebSocket(buildThreadUrl(thread_id), { headers });
      const opened = await new Promise<boolean>((resolve) => {
        socket.addEventListener('open', () => resolve(true));
        socket.addEventListener('error', () => resolve(false));
      });
      socket.close();
      return opened;
    };
    const cookie = 'session=secret-ada';
    expect(await canOpen({ cookie })).toBe(true);
    expect(await canOpen({ cookie, origin: server.url })).toBe(true);
    expect(await canOpen({ cookie, origin: 'https://ours.example' })).toBe(true);
    expect(await canOpen({ cookie, origin: 'https://elsewhere.example' })).toBe(false);
    // A client that can set this header is not a browser page.
    expect(await canOpen({ ...bearer('ada'), origin: 'https://elsewhere.example' })).toBe(true);
  });

  it('applies the same access checks to each command as to its REST route', async () => {
    const { thread_id } = await clientOf('ada').threads.create({ metadata: { animal: 'okapi' } });
    await clientOf('ada').runs.wait(thread_id, 'ask', { input: { question: 'okapi?' } });
    const { interrupts, ...before } = await clientOf('ada').threads.get(thread_id);
    const state = await clientOf('ada').threads.getState(thread_id);
    const [asked] = Object.values(interrupts).flat();
    const all = { channels: ['values', 'lifecycle', 'input'] };
    const commands = [
      { method: 'state.get', params: { namespace: [] } },
      { method: 'state.listCheckpoints', params: {} },
      { method: 'state.fork', params: { checkpoint_id: state.checkpoint.checkpoint_id } },
      { method: 'agent.getTree', params: {} },
      { method: 'subscription.subscribe', params: all },
      { method: 'run.start', params: { assistant_id: 'ask', input: {} } },
      { method: 'input.respond', params: { namespace: [], interrupt_id: asked?.id, response: 'stolen' } },
    ];
    const answers = await sendCommands('ben', thread_id, commands);
    expect(answers).toMatchObject(commands.map((_, id) => ({ id, type: 'error' })));
    expect(JSON.stringify(answers)).not.toContain('okapi');
    expect(await clientOf('ada').threads.get(thread_id)).toEqual({ ...before, interrupts });
    const [answer] = (await sendCommands('ada', thread_id, commands.slice(0, 1))) ?? [];
    expect(answer).toMatchObject({ type: 'success', result: { values: { question: 'okapi?' } } });
  });

  it('runs no assistant of another user, whatever a thread or a command names', async () => {
    const { assistant_id } = await clientOf('ada').assistants.create({ graphId: 'ask', name: 'hers' });
    const { thread_id } = await clientOf('ben').threads.create();
    await clientOf('ben').runs.wait(thread_id, 'ask', { input: {} });
    const { checkpoint, tasks } = await clientOf('ben').threads.getState(thread_id);
    await clientOf('ben').threads.update(thread_id, { metadata: { assistant_id } });
    const named = { assistant_id: 'ask' };
    const answer = { namespace: [], interrupt_id: tasks[0]?.interrupts[0]?.id, response: 'yes' };
    const commands = [
      { method: 'state.fork', params: { ...named, checkpoint_id: checkpoint.checkpoint_id } },
      { method: 'input.respond', params: { ...named, ...answer } },
    ];
    const refused = commands.map(() => ({ type: 'error', message: expect.stringContaining(assistant_id) }));
    expect(await sendCommands('ben', thread_id, commands)).toMatchObject(refused);
    await clientOf('ben').threads.update(thread_id, { metadata: { assistant_id: 'ask' } });
    const own = { method: 'input.respond', params: answer };
    expect(await sendCommands('ben', thread_id, [own])).toMatchObject([{ type: 'success' }]);
  });

  it('sends no events of a thread that another user creates later', async () => {
    const threadId = crypto.randomUUID();
    const subscribe = { method: 'subscription.subscribe', params: { channels: ['values'] } };
    expect(await sendCommands('ben', threadId, [subscribe])).toMatchObject([
      { type: 'error', message: expect.stringContaining('There is no thread') },
    ]);
  });
});
