import { type Message, Role, type StreamResponse, type Task, TaskState } from '@a2a-js/sdk';
import { ClientFactory, DefaultAgentCardResolver, JsonRpcTransportFactory } from '@a2a-js/sdk/client';
import { isLegacyAgentCard, LegacyJsonRpcTransport, parseLegacyAgentCard } from '@a2a-js/sdk/compat/v0_3/client';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { leaseThread } from '../../../pipelines/agents/threads/update-thread-state.ts';
import { forSuite } from '../../for-suite.ts';
import { untilLockWait } from '../../infra/postgres/lock-waits.ts';
import { addOrganization } from '../start-api.ts';
import { startAgentServer } from './start-agent-server.ts';

const agent = forSuite(() => startAgentServer());

/** Returns the official client, with its 0.3 wire format. */
function createClient(assistant: string, key = agent.owner.adminKey): LegacyJsonRpcTransport {
  return new LegacyJsonRpcTransport({
    endpoint: `${agent.url}/a2a/${assistant}`,
    fetchImpl: (url, init) => fetch(url, { ...init, headers: { ...init?.headers, 'x-api-key': key } }),
  });
}

const text = (value: string) => ({ content: { $case: 'text', value } });
const data = (value: object) => ({ content: { $case: 'data', value } });

function sendParams(parts: object[], more: object = {}): Parameters<LegacyJsonRpcTransport['sendMessage']>[0] {
  const message = { messageId: 'm1', role: Role.ROLE_USER, parts, contextId: '', taskId: '', extensions: [], ...more };
  return { tenant: '', message: message as unknown as Message, configuration: undefined, metadata: undefined };
}

/** Sends the raw JSON-RPC request, because the client converts responses to its own types. */
async function rpc(assistant: string, method: string, params: unknown, headers: Record<string, string> = {}) {
  const body = { jsonrpc: '2.0', id: 'one', method, params };
  const answer = await agent.ask('POST', `/a2a/${assistant}`, body, headers);
  return (await answer.json()) as { id: string; result: WireTask; error: { code: number; message: string } };
}
interface WireTask {
  readonly id: string;
  readonly contextId: string;
  readonly status: { readonly state: string; readonly message?: { readonly parts: unknown[] } };
  readonly artifacts: readonly { readonly name: string; readonly parts: unknown[] }[];
  readonly history: unknown[];
}
const message = (parts: object[], more: object = {}) => ({ message: { role: 'user', messageId: 'm', parts, ...more } });
const words = (value: string) => [{ kind: 'text', text: value }];

describe('message/send', () => {
  it('responds with the task and keeps the context', async () => {
    const client = createClient('echo');
    const first = (await client.sendMessage(sendParams([text('hello')]))) as Task;
    expect(first.status?.state).toBe(TaskState.TASK_STATE_COMPLETED);
    expect(first.artifacts).toMatchObject([{ name: 'Assistant Response', parts: [text('echo: hello')] }]);
    const second = (await client.sendMessage(sendParams([text('more')], { contextId: first.contextId }))) as Task;
    expect([second.contextId, second.id === first.id]).toEqual([first.contextId, false]);
    expect(second.history.map(({ parts }) => parts[0]?.content?.value)).toEqual([
      'hello',
      'echo: hello',
      'more',
      'echo: more',
    ]);
    const { values } = await agent.client.threads.getState<{ messages: unknown[] }>(first.contextId);
    expect(values.messages).toHaveLength(4);
    // The task is unchanged, although its context has been continued.
    const rereadTask = await client.getTask({ tenant: '', id: first.id, historyLength: 1 });
    expect(rereadTask).toMatchObject({
      id: first.id,
      artifacts: first.artifacts,
      history: [{ parts: [text('echo: hello')] }],
    });
  });

  it('passes data to the graph unchanged and returns the state of the graph', async () => {
    const { result } = await rpc('steps', 'message/send', message([{ kind: 'data', data: { steps: 1, text: 'hop' } }]));
    expect(result.status.state).toBe('completed');
    expect(result.artifacts).toMatchObject([{ parts: [{ kind: 'data', data: { log: ['hop 1'] } }] }]);
  });

  it('stops for input and resumes with the reply', async () => {
    const client = createClient('ask');
    for (const answer of [() => text('yes'), (id: string) => data({ resume: [{ id, value: 'yes' }] })]) {
      const asked = (await client.sendMessage(sendParams([data({ question: 'Sure?' })]))) as Task;
      expect(asked.status?.state).toBe(TaskState.TASK_STATE_INPUT_REQUIRED);
      const question = asked.status?.message?.parts[0]?.content?.value as { interrupts: { id: string }[] };
      expect(question).toMatchObject({ interrupts: [{ value: { question: 'Sure?' } }] });
      const location = { contextId: asked.contextId, taskId: asked.id };
      const done = (await client.sendMessage(sendParams([answer(question.interrupts[0]?.id ?? '')], location))) as Task;
      expect(done.status?.state).toBe(TaskState.TASK_STATE_COMPLETED);
      expect(done.artifacts[0]?.parts).toMatchObject([data({ result: 'answered: yes' })]);
      await expect(client.sendMessage(sendParams([text('again')], location))).rejects.toThrow('does not need input');
    }
  });

  it('accepts one of two replies to a task, so that the other does not answer the next question', async () => {
    const { result: asked } = await rpc('inquiring', 'message/send', message([{ kind: 'data', data: {} }]));
    expect(asked.status.state).toBe('input-required');
    const { contextId, id: taskId } = asked;
    const reply = (word: string) =>
      rpc('inquiring', 'message/send', {
        ...message(words(word), { contextId, taskId }),
        configuration: { blocking: false },
      });
    const { database, services } = agent;
    // While the thread is leased, no run of it begins.
    const lease = await leaseThread(database, services.agents.deploymentId, contextId, 60_000);
    const accepted = await reply('first');
    expect((await reply('again')).error).toMatchObject({ code: -32602, message: expect.stringContaining('busy') });
    await lease.release();
    const { id } = accepted.result;
    await vi.waitFor(async () => {
      expect((await rpc('inquiring', 'tasks/get', { id, contextId })).result.status).toMatchObject({
        state: 'input-required',
        message: { parts: [{ data: { interrupts: [{ value: 'two?' }] } }] },
      });
    });
    expect((await rpc('inquiring', 'tasks/get', { id: taskId, contextId })).result.status.state).toBe('completed');
    const next = await rpc('inquiring', 'message/send', message(words('second'), { contextId, taskId: id }));
    expect(next.result).toMatchObject({
      artifacts: [],
      status: { state: 'input-required', message: { parts: [{ data: { interrupts: [{ value: 'three?' }] } }] } },
    });
    expect(await agent.client.runs.list(contextId)).toHaveLength(3);
  });

  it('refuses a reply if the run of another reply ended meanwhile', async () => {
    const { result: asked } = await rpc('inquiring', 'message/send', message([{ kind: 'data', data: {} }]));
    const { contextId, id: taskId } = asked;
    let reply: ReturnType<typeof rpc> | undefined;
    await agent.database.transaction(async (tx) => {
      await tx.execute('UPDATE agents.threads SET starts = starts + 1 WHERE thread_id = $1', [contextId]);
      reply = rpc('inquiring', 'message/send', message(words('late'), { contextId, taskId }));
      await untilLockWait(agent.database);
      await tx.execute(
        `INSERT INTO agents.runs (deployment_id, thread_id, run_id, assistant_id, graph_id, kwargs, status, thread_start)
         SELECT deployment_id, thread_id, gen_random_uuid(), assistant_id, graph_id, kwargs, status, thread_start + 1
         FROM agents.runs WHERE run_id = $1`,
        [taskId],
      );
    });
    expect((await reply)?.error).toMatchObject({ code: -32602, message: expect.stringContaining('needs input') });
    expect(await agent.client.runs.list(contextId)).toHaveLength(2);
  });

  it('still needs input after a reply that fails', async () => {
    const { result: asked } = await rpc('inquiring', 'message/send', message([{ kind: 'data', data: {} }]));
    const { contextId } = asked;
    const getState = async (id: string) => (await rpc('inquiring', 'tasks/get', { id, contextId })).result.status;
    const reply = async (taskId: string, word: string) =>
      (await rpc('inquiring', 'message/send', message(words(word), { contextId, taskId }))).result;
    const { id: taskId, status } = await reply(asked.id, 'yes');
    expect(status.state).toBe('input-required');
    for (const _ of [1, 2]) {
      expect((await reply(taskId, 'fail')).status.state).toBe('failed');
      expect(await getState(taskId)).toMatchObject({
        state: 'input-required',
        message: { parts: [{ data: { interrupts: [{ value: 'two?' }] } }] },
      });
      expect((await getState(asked.id)).state).toBe('completed');
    }
    // The state is changed without an answer.
    await agent.client.threads.updateState(contextId, { values: { path: ['changed'] } });
    expect((await getState(taskId)).state).toBe('completed');
  });

  it('responds at once in non-blocking mode', async () => {
    const params = {
      ...message([{ kind: 'data', data: { steps: 1, pauseMs: 300 } }]),
      configuration: { blocking: false },
    };
    const { result } = await rpc('steps', 'message/send', params);
    expect(['submitted', 'working']).toContain(result.status.state);
    const { id, contextId } = result;
    await vi.waitFor(async () => {
      expect((await rpc('steps', 'tasks/get', { id, contextId })).result.status.state).toBe('completed');
    });
  });

  it('reports why a task failed', async () => {
    const { result } = await rpc('misbehave', 'message/send', message([{ kind: 'data', data: { how: 'fail' } }]));
    expect(result.status).toMatchObject({
      state: 'failed',
      message: { parts: [{ text: 'TypeError: the node failed on purpose' }] },
    });
  });
});

it('message/stream sends the updates of a task as they occur', async () => {
  const events: StreamResponse['payload'][] = [];
  for await (const { payload } of createClient('chat').sendMessageStream(sendParams([text('hello')])))
    events.push(payload);
  const kinds = events.map((event) => event?.$case);
  expect([kinds[0], kinds.at(-2), kinds.at(-1)]).toEqual(['task', 'artifactUpdate', 'statusUpdate']);
  const artifactParts = events.flatMap((event) =>
    event?.$case === 'statusUpdate' ? (event.value.status?.message?.parts ?? []) : [],
  );
  expect(artifactParts.map(({ content }) => content?.value).join('')).toContain('Good day.');
  expect(events.at(-2)).toMatchObject({ value: { artifact: { parts: [text('Good day.')] } } });
  expect(events.at(-1)).toMatchObject({ value: { status: { state: TaskState.TASK_STATE_COMPLETED } } });
});

describe('an invalid request', () => {
  const absent = '01890000-0000-7000-8000-000000000000';
  it.each<[string, string, string, unknown, number]>([
    ['an unknown method', 'echo', 'message/shout', {}, -32601],
    ['a message without parts', 'echo', 'message/send', message([]), -32602],
    ['a file', 'echo', 'message/send', message([{ kind: 'file', file: { uri: 'https://example.com' } }]), -32005],
    ['a context id that is not a UUID', 'echo', 'message/send', message(words('x'), { contextId: 'here' }), -32602],
    ['text for a graph without messages', 'typed', 'message/send', message(words('x')), -32602],
    ['a missing task', 'echo', 'message/send', message(words('x'), { taskId: absent }), -32001],
    ['no task', 'echo', 'tasks/get', {}, -32602],
    ['an unknown task', 'echo', 'tasks/get', { id: absent, contextId: absent }, -32001],
    ['a task id that is not a UUID', 'echo', 'tasks/get', { id: 'task-1' }, -32001],
    ['a context id that is not a UUID', 'echo', 'tasks/get', { id: absent, contextId: 'context-1' }, -32001],
    [
      'a reply to a task id that is not a UUID',
      'echo',
      'message/send',
      message(words('x'), { taskId: 'task-1' }),
      -32001,
    ],
    ['too much history', 'echo', 'tasks/get', { id: absent, contextId: absent, historyLength: 11 }, -32602],
    ['a cancel of an unknown task', 'echo', 'tasks/cancel', { id: absent }, -32001],
    ['a subscription', 'echo', 'tasks/resubscribe', { id: absent }, -32004],
    ['a list', 'echo', 'ListTasks', {}, -32004],
    ['a message without parts in 1.0', 'echo', 'SendMessage', message([]), -32602],
    ['a message in the form of 0.3', 'echo', 'SendMessage', { message: 'hello' }, -32602],
    ['an unknown role in 1.0', 'echo', 'SendMessage', message([{ text: 'x' }], { role: 'ROLE_OTHER' }), -32602],
    ['a file in 1.0', 'echo', 'SendMessage', message([{ url: 'https://example.com' }], { role: 'ROLE_USER' }), -32005],
    ['a push in 1.0', 'echo', 'CreateTaskPushNotificationConfig', {}, -32003],
    ['no params', 'echo', 'SendMessage', undefined, -32602],
    ['a push', 'echo', 'tasks/pushNotificationConfig/set', {}, -32003],
  ])('%s', async (_, assistant, method, params, code) => {
    const { id, error } = await rpc(assistant, method, params);
    expect([id, error.code]).toEqual(['one', code]);
  });

  it('rejects a task of another assistant', async () => {
    const { result } = await rpc('echo', 'message/send', message(words('x')));
    const { id, contextId } = result;
    expect((await rpc('chat', 'tasks/get', { id, contextId })).error.code).toBe(-32001);
  });

  it('has the HTTP status of its error', async () => {
    const post = (path: string, body: unknown) => agent.ask('POST', path, body);
    expect((await post('/a2a/nobody', {})).status).toBe(404);
    expect((await post('/a2a/echo', { id: 1, method: 'message/send' })).status).toBe(400);
    expect((await post('/a2a/echo', 'x'.repeat(17 * 1024 * 1024))).status).toBe(413);
    const headers = { 'x-api-key': agent.owner.adminKey };
    const payload = { jsonrpc: '2.0', id: 1, method: 'tasks/get' };
    const responseWithoutId = await agent.server.inject({ method: 'POST', url: '/a2a/echo', headers, payload });
    expect([responseWithoutId.statusCode, responseWithoutId.json().error.code]).toEqual([400, -32600]);
  });

  it('rejects a body that is not JSON', async () => {
    const headers = { 'x-api-key': agent.owner.adminKey, 'content-type': 'application/json' };
    for (const body of ['{"jsonrpc":"2.0",', 'no JSON', Buffer.from([0xff, 0x22])]) {
      const answer = await fetch(`${agent.url}/a2a/echo`, { method: 'POST', headers, body });
      expect([answer.status, await answer.json()]).toEqual([
        200,
        { jsonrpc: '2.0', id: null, error: { code: -32700, message: expect.any(String) } },
      ]);
    }
  });

  it('responds 400 if Accept excludes event streams, or the id is invalid', async () => {
    const ask = async (body: object, headers: Record<string, string> = {}) => {
      const answer = await agent.ask('POST', '/a2a/echo', body, headers);
      const { id, error } = (await answer.json()) as { id: unknown; error: { code: number } };
      return [answer.status, id, error.code];
    };
    const stream = { jsonrpc: '2.0', id: 1, method: 'message/stream', params: message(words('x')) };
    expect(await ask(stream, { accept: 'application/json' })).toEqual([400, 1, -32600]);
    expect(await ask({ ...stream, method: 'message/send', id: { a: 1 } })).toEqual([400, null, -32600]);
    expect(await agent.client.threads.search({ status: 'busy' })).toEqual([]);
  });

  it('rejects a key of another organisation', async () => {
    const other = await addOrganization(agent.database, 'other');
    await expect(createClient('echo', other.adminKey).sendMessage(sendParams([text('x')]))).rejects.toThrow('403');
  });
});

describe('version 1.0', () => {
  /** Connects the official client, which reads the card and does not know 0.3. */
  const connect = (assistant: string) => {
    const fetchImpl: typeof fetch = (url, init) =>
      fetch(url, { ...init, headers: { ...init?.headers, 'x-api-key': agent.owner.adminKey } });
    const factory = new ClientFactory({
      transports: [new JsonRpcTransportFactory({ fetchImpl })],
      cardResolver: new DefaultAgentCardResolver({ fetchImpl }),
    });
    return factory.createFromUrl(agent.url, `/.well-known/agent-card.json?assistant_id=${assistant}`);
  };

  it('sends, reads and resumes tasks', async () => {
    const client = await connect('echo');
    const sent = (await client.sendMessage(sendParams([text('hello')]))) as Task;
    expect(sent).toMatchObject({
      status: { state: TaskState.TASK_STATE_COMPLETED },
      artifacts: [{ name: 'Assistant Response', parts: [text('echo: hello')] }],
      history: [
        { role: Role.ROLE_USER, parts: [text('hello')], taskId: sent.id },
        { role: Role.ROLE_AGENT, parts: [text('echo: hello')], contextId: sent.contextId },
      ],
    });
    expect(await client.getTask({ tenant: '', id: sent.id, historyLength: 10 })).toEqual(sent);
    const asking = await connect('ask');
    const asked = (await asking.sendMessage(sendParams([data({ question: 'Sure?' })]))) as Task;
    expect(asked.status).toMatchObject({
      state: TaskState.TASK_STATE_INPUT_REQUIRED,
      message: { parts: [data({ interrupts: [{ id: expect.any(String), value: { question: 'Sure?' } }] })] },
    });
    const location = { contextId: asked.contextId, taskId: asked.id };
    const done = (await asking.sendMessage(sendParams([text('yes')], location))) as Task;
    expect(done.artifacts[0]?.parts).toMatchObject([data({ result: 'answered: yes' })]);
  });

  it('streams the updates of a task', async () => {
    const client = await connect('chat');
    const updates: StreamResponse[] = [];
    for await (const update of client.sendMessageStream(sendParams([text('hi')]))) updates.push(update);
    const kinds = updates.map(({ payload }) => payload?.$case);
    expect([kinds[0], kinds.at(-2), kinds.at(-1)]).toEqual(['task', 'artifactUpdate', 'statusUpdate']);
    expect(updates.at(-2)).toMatchObject({ payload: { value: { artifact: { parts: [text('Good day.')] } } } });
    expect(updates.at(-1)).toMatchObject({ payload: { value: { status: { state: TaskState.TASK_STATE_COMPLETED } } } });
  });

  it('cancels a task, once', async () => {
    const client = await connect('burst');
    const configuration = { returnImmediately: true, acceptedOutputModes: [], taskPushNotificationConfig: undefined };
    const params = { ...sendParams([data({ n: 10_000, pauseMs: 50 })]), configuration };
    const { id } = (await client.sendMessage(params)) as Task;
    const cancelled = await client.cancelTask({ tenant: '', id, metadata: undefined });
    expect(cancelled).toMatchObject({ id, status: { state: TaskState.TASK_STATE_CANCELED } });
    await expect(client.cancelTask({ tenant: '', id, metadata: undefined })).rejects.toThrow(`Task ${id} is canceled.`);
    expect((await rpc('burst', 'tasks/cancel', { id })).error.code).toBe(-32002);
  });

  it.each([
    ['2.0', -32009],
    ['1.0', undefined],
    ['1.0.1', undefined],
    ['0.3', undefined],
    ['', undefined],
  ])('responds to the header A2A-Version %j', async (version, code) => {
    const { error } = await rpc('echo', 'message/send', message(words('x')), { 'a2a-version': version });
    expect(error?.code).toBe(code);
  });
});

describe('the agent card', () => {
  it('contains the URL of the assistant and its input', async () => {
    const answer = await agent.ask('GET', '/.well-known/agent-card.json?assistant_id=typed');
    const raw = (await answer.json()) as { url: string; skills: { metadata: object }[] };
    // Clients of 0.3 do not know `supportedInterfaces`.
    expect(isLegacyAgentCard({ ...raw, supportedInterfaces: [] })).toBe(true);
    const card = parseLegacyAgentCard(raw);
    expect(card).toMatchObject({ name: 'typed', capabilities: { streaming: true, pushNotifications: false } });
    expect(card.supportedInterfaces).toMatchObject([{ url: raw.url, protocolBinding: 'JSONRPC' }]);
    expect(raw.skills[0]?.metadata).toMatchObject({ inputSchema: { properties: { topic: { type: 'string' } } } });
    expect(new URL(raw.url).pathname).toMatch(/^\/a2a\/[\da-f-]{36}$/);
    expect((await agent.ask('GET', '/.well-known/agent-card.json')).status).toBe(422);
  });

  it('contains the public address if one is configured, and never an invalid host', async () => {
    const readCardUrl = async (headers: Record<string, string> = {}) => {
      const url = '/.well-known/agent-card.json?assistant_id=echo';
      const answer = await agent.server.inject({ url, headers: { 'x-api-key': agent.owner.adminKey, ...headers } });
      return (answer.json() as { url: string }).url;
    };
    expect(await readCardUrl({ host: 'agents.example:8443' })).toMatch(
      /^http:\/\/agents\.example:8443\/a2a\/[\da-f-]{36}$/,
    );
    expect(await readCardUrl({ host: 'a"b/c' })).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/a2a\//);
    const { config } = agent.services.agents;
    Object.assign(config, { agentsPublicUrl: 'https://example.com/agents/' });
    onTestFinished(() => {
      Object.assign(config, { agentsPublicUrl: undefined });
    });
    expect(await readCardUrl()).toMatch(/^https:\/\/example\.com\/agents\/a2a\/[\da-f-]{36}$/);
  });

  it('responds 404 if langgraph.json disables A2A', async () => {
    const { agents } = agent.services;
    Object.assign(agents, { protocols: { mcp: true, a2a: false } });
    onTestFinished(() => Object.assign(agents, { protocols: undefined }));
    expect((await agent.ask('GET', '/.well-known/agent-card.json?assistant_id=echo')).status).toBe(404);
    expect((await agent.ask('POST', '/a2a/echo', {})).status).toBe(404);
  });
});
