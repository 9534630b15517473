import { randomBytes, randomUUID } from 'node:crypto';
import { Client } from '@langchain/langgraph-sdk';
import type { Event } from '@langchain/protocol';
import { WebSocket } from 'undici';
import { describe, expect, it } from 'vitest';
import { forSuite } from '../../for-suite.ts';
import { startAgentServer } from './start-agent-server.ts';

const agents = forSuite(() => startAgentServer());

type Transport = 'sse' | 'websocket';

/** Opens a WebSocket with a key. The stock client needs a factory for this, because browsers cannot set its headers. */
const openSocket = (url: string, key = agents.owner.adminKey) => new WebSocket(url, { headers: { 'x-api-key': key } });

function openThread(transport: Transport, assistantId: string, threadId: string = randomUUID()) {
  if (transport === 'sse') return agents.client.threads.stream(threadId, { assistantId, transport });
  const client = new Client({ apiUrl: agents.url, apiKey: null as never });
  const webSocketFactory = (url: string) => openSocket(url) as never;
  return client.threads.stream(threadId, { assistantId, transport, webSocketFactory });
}

const channels = ['values', 'updates', 'messages', 'tools', 'lifecycle', 'input', 'tasks', 'checkpoints'] as const;
const allChannels = [...channels, 'custom'] as const;

/** Reads events up to the end of a run. */
async function untilEnd(events: AsyncIterable<Event>): Promise<Event[]> {
  const seen: Event[] = [];
  for await (const event of events) {
    seen.push(event);
    if (isEnd(event)) break;
  }
  return seen;
}

function isEnd({ method, params }: Event): boolean {
  const ends = ['completed', 'failed', 'interrupted'];
  return method === 'lifecycle' && params.namespace.length === 0 && ends.includes(params.data.event);
}

const ask = async (threadId: string, command: unknown) => {
  const answer = await agents.ask('POST', `/threads/${threadId}/commands`, command);
  return { status: answer.status, body: (await answer.json()) as Record<string, unknown> };
};

describe.each<Transport>(['sse', 'websocket'])('over %s', (transport) => {
  it('starts a run on a new thread, and streams its messages and its end', async () => {
    const thread = openThread(transport, 'chat');
    const started = (await thread.run.start({ input: { messages: [{ role: 'user', content: 'Hello' }] } })) as object;
    expect(started).toEqual({ run_id: expect.any(String) });
    const texts: string[] = [];
    for await (const message of thread.messages) {
      texts.push(await message.text);
      break;
    }
    expect(texts).toEqual(['Good day.']);
    const output = (await thread.output) as { messages: { text: string }[] };
    expect(output.messages.map(({ text }) => text)).toEqual(['Hello', 'Good day.']);
    await thread.close();
  });

  it('reports the namespace of an event, including those of subgraphs', async () => {
    const thread = openThread(transport, 'parent');
    const events = await thread.subscribe({ channels: [...allChannels] });
    await thread.run.start({ input: { ask: false } });
    const seen = await untilEnd(events);
    const childEvents = seen.filter(({ params }) => params.namespace[0]?.startsWith('child:'));
    expect(new Set(childEvents.map(({ method }) => method))).toEqual(
      new Set(['lifecycle', 'tasks', 'values', 'updates', 'checkpoints', 'custom']),
    );
    expect(childEvents.filter(({ method }) => method === 'lifecycle').map(({ params }) => params.data)).toEqual([
      { event: 'started', graph_name: 'child' },
      { event: 'completed', graph_name: 'child' },
    ]);
    expect(seen[0]).toMatchObject({
      ...{ method: 'lifecycle' },
      params: { namespace: [], data: { event: 'running', graph_name: 'parent' } },
    });
    expect(seen.at(-1)).toMatchObject({ method: 'lifecycle', params: { data: { event: 'completed' } } });
    expect(seen.find(({ method }) => method === 'custom')?.params.data).toEqual({ payload: { from: 'inner' } });
    const outer = seen.find(({ method, params }) => method === 'updates' && params.namespace.length === 0);
    expect(outer?.params).toMatchObject({ node: 'outer', data: { path: ['outer'] } });
    await thread.close();
  });

  it('streams an interrupt and resumes with the reply', async () => {
    const thread = openThread(transport, 'parent');
    const events = await thread.subscribe({ channels: [...allChannels] });
    await thread.run.start({ input: { ask: true } });
    const before = await untilEnd(events);
    expect(before.at(-1)?.params.data).toEqual({ event: 'interrupted', graph_name: 'parent' });
    expect(before.filter(({ params }) => JSON.stringify(params.data).includes('__interrupt__'))).toEqual([]);
    const [question] = thread.interrupts;
    expect(question).toMatchObject({ payload: 'inside?' });
    const { interruptId: id = '', namespace = [] } = question ?? {};
    await expect(thread.input.respond({ namespace, interrupt_id: 'no', response: 1 })).rejects.toMatchObject({
      code: 'no_such_interrupt',
    });
    const after = await thread.subscribe({ channels: ['values', 'lifecycle'] });
    await thread.input.respond({ namespace, interrupt_id: id, response: 'yes' });
    const seen: Event[] = [];
    for await (const event of after) {
      if (Number(event.seq) <= Number(before.at(-1)?.seq)) continue;
      seen.push(event);
      if (isEnd(event)) break;
    }
    const values = seen.filter(({ method, params }) => method === 'values' && params.namespace.length === 0);
    expect(values.at(-1)?.params.data).toMatchObject({ path: ['outer', 'outer', 'inner', 'yes'] });
    const { values: state } = await thread.state.get({ namespace: [], keys: ['path'] });
    expect(state).toEqual({ path: ['outer', 'outer', 'inner', 'yes'] });
    await thread.close();
  });

  it('accepts a reply sent as soon as the interrupt is streamed', async () => {
    const thread = openThread(transport, 'ask');
    const asking = await thread.subscribe({ channels: ['input'] });
    await thread.run.start({ input: { question: 'Sure?' } });
    for await (const { method, params } of asking) {
      if (method !== 'input.requested') continue;
      const { interrupt_id } = params.data as { interrupt_id: string };
      await thread.input.respond({ namespace: [], interrupt_id, response: 'yes' });
      break;
    }
    await expect
      .poll(async () => (await agents.client.threads.get(thread.threadId)).values, { timeout: 10_000 })
      .toMatchObject({ result: 'answered: yes' });
    await thread.close();
  });

  it('uses the input of a run as the reply to an open interrupt, at the checkpoint that the run starts from', async () => {
    const thread = openThread(transport, 'ask');
    const { threadId } = thread;
    const result = async () => (await agents.client.threads.get(threadId)).values;
    const startAndJoin = async (input: unknown, config?: { configurable: object }) => {
      const { run_id } = (await thread.run.start({ input, config } as never)) as { run_id: string };
      await agents.client.runs.join(threadId, run_id);
    };
    await startAndJoin({ question: 'Sure?' });
    const first = (await agents.client.threads.getHistory(threadId)).at(-1)?.checkpoint.checkpoint_id;
    await startAndJoin({ question: 'Other?' }, { configurable: { checkpoint_id: first } });
    expect(await agents.client.threads.get(threadId)).toMatchObject({
      ...{ status: 'interrupted', values: { question: 'Other?' } },
    });
    await startAndJoin('yes');
    expect(await result()).toMatchObject({ question: 'Other?', result: 'answered: yes' });
    await thread.close();
  });

  it('uses a run started as soon as the interrupt is streamed as the reply', async () => {
    const thread = openThread(transport, 'ask');
    const asking = await thread.subscribe({ channels: ['input'] });
    await thread.run.start({ input: { question: 'Sure?' } });
    for await (const { method } of asking) {
      if (method !== 'input.requested') continue;
      await thread.run.start({ input: 'yes' });
      break;
    }
    await expect
      .poll(async () => (await agents.client.threads.get(thread.threadId)).values, { timeout: 10_000 })
      .toMatchObject({ result: 'answered: yes' });
    await thread.close();
  });

  it('ends a run that is cancelled or stops at a breakpoint as completed', async () => {
    const cancelled = openThread(transport, 'steps');
    const events = await cancelled.subscribe({ channels: ['lifecycle', 'values'] });
    const { run_id } = (await cancelled.run.start({ input: { steps: 1, pauseMs: 60_000 } })) as { run_id: string };
    const seen: Event[] = [];
    for await (const event of events) {
      if (event.method === 'values' && !seen.some(({ method }) => method === 'values')) {
        await agents.client.runs.cancel(cancelled.threadId, run_id);
      }
      seen.push(event);
      if (isEnd(event)) break;
    }
    expect(seen.at(-1)?.params.data).toEqual({ event: 'completed', graph_name: 'steps' });
    expect(cancelled.interrupted).toBe(false);
    expect((await agents.client.runs.get(cancelled.threadId, run_id)).status).toBe('interrupted');
    await cancelled.close();
    const paused = openThread(transport, 'pausing');
    const ends = await paused.subscribe({ channels: [...allChannels] });
    await paused.run.start({ input: { question: 'Go?' } });
    const before = await untilEnd(ends);
    expect(before.at(-1)?.params.data).toEqual({ event: 'completed', graph_name: 'pausing' });
    expect(before.filter(({ params }) => JSON.stringify(params.data).includes('__interrupt__'))).toEqual([]);
    await paused.close();
  });

  it('lists the checkpoints of a thread and forks from one', async () => {
    const thread = openThread(transport, 'ask');
    const { threadId } = thread;
    const { run_id } = (await thread.run.start({ input: { question: 'Sure?' } })) as { run_id: string };
    await agents.client.runs.join(threadId, run_id);
    const { checkpoints } = await thread.state.listCheckpoints({ namespace: [] });
    expect(checkpoints.map(({ step }) => step)).toEqual([1, 0, -1]);
    expect(checkpoints[0]).toMatchObject({ metadata: { run_id, source: 'loop' }, timestamp: expect.any(String) });
    const [newest, middle, oldest] = checkpoints.map(({ id }) => id);
    const page = await thread.state.listCheckpoints({ limit: 1, before: newest! });
    expect(page.checkpoints.map(({ id }) => id)).toEqual([middle]);

    const again = await thread.state.fork({ checkpoint_id: middle! });
    expect(again).toEqual({ run_id: expect.any(String), thread_id: threadId });
    await agents.client.runs.join(threadId, again.run_id);
    expect(await agents.client.threads.getState(threadId)).toMatchObject({
      ...{ values: { question: 'Sure?' }, next: ['ask'] },
      metadata: { run_id: again.run_id },
    });
    const other = await thread.state.fork({ checkpoint_id: oldest!, input: { question: 'Other?' } });
    await agents.client.runs.join(threadId, other.run_id);
    expect(await agents.client.threads.getState(threadId)).toMatchObject({ values: { question: 'Other?' } });
    await expect(thread.state.fork({ checkpoint_id: '1ef' })).rejects.toMatchObject({ code: 'no_such_checkpoint' });
    await thread.close();
  });

  it('reports an event that is missing to readers of every channel, and missing last values to readers of values', async () => {
    /** Runs a graph and returns the custom events and errors that a reader of `channels` receives. */
    const run = async (how: string, ...channels: ('values' | 'lifecycle')[]) => {
      const thread = openThread(transport, 'misbehave');
      const custom: unknown[] = [];
      const errors: unknown[] = [];
      thread.onEvent(({ method, params }) => method === 'custom' && custom.push(params));
      thread.onError(({ message }) => errors.push(message));
      const events = await thread.subscribe(channels);
      await thread.run.start({ input: { how } });
      expect((await untilEnd(events)).at(-1)).toMatchObject({ params: { data: { event: 'completed' } } });
      await thread.close();
      return { custom, errors };
    };
    const text = (event: string) => expect.stringMatching(`Event '${event}' .*The stream does not contain the event`);
    const warning = (event: string) => ({ name: 'warning', payload: { error: 'EventTooLarge', message: text(event) } });
    const large = await run('large', 'lifecycle');
    expect(large).toEqual({
      custom: [expect.objectContaining({ namespace: [], data: warning('custom') })],
      errors: [],
    });
    const { custom, errors } = await run('large-state', 'values', 'lifecycle');
    expect(custom).toContainEqual(expect.objectContaining({ data: warning('values') }));
    // The WebSocket transport of the client drops errors that are no responses.
    if (transport === 'sse') expect(errors).toEqual([expect.stringMatching(/EventTooLarge: Event 'values' /)]);
  });

  it('reports a failed run and the results of a tool', async () => {
    const thread = openThread(transport, 'tools');
    const events = await thread.subscribe(['tools', 'lifecycle']);
    await thread.run.start({ input: { messages: [] } });
    const seen = await untilEnd(events);
    expect(seen.filter(({ method }) => method === 'tools').map(({ params }) => params.data)).toMatchObject([
      { event: 'tool-started', tool_call_id: 'call-1', tool_name: 'add' },
      { event: 'tool-finished', tool_call_id: 'call-1' },
    ]);
    await thread.close();
    const failing = openThread(transport, 'misbehave');
    const ends = await failing.subscribe(['lifecycle']);
    await failing.run.start({ input: { how: 'throw' } });
    expect((await untilEnd(ends)).at(-1)?.params.data).toMatchObject({ event: 'failed', error: expect.any(String) });
    await failing.close();
  });
});

describe('an event stream', () => {
  const read = async (threadId: string, body: object, count: number) => {
    const cut = new AbortController();
    const answer = await fetch(`${agents.url}/threads/${threadId}/stream/events`, {
      method: 'POST',
      headers: { 'x-api-key': agents.owner.adminKey, 'content-type': 'application/json' },
      body: JSON.stringify(body),
      signal: cut.signal,
    });
    expect(answer.status).toBe(200);
    const seen: { event_id: string; seq: number; method: string; params: { data: object } }[] = [];
    let text = '';
    for await (const chunk of answer.body as unknown as AsyncIterable<Uint8Array>) {
      text += Buffer.from(chunk).toString('utf8');
      const frames = text.split('\n\n');
      text = frames.pop() ?? '';
      for (const frame of frames) {
        const fields = Object.fromEntries(frame.split('\n').map((line) => [line.split(': ', 1)[0], line]));
        const data = JSON.parse(String(fields.data).slice('data: '.length));
        expect([fields.event, fields.id]).toEqual([`event: ${data.method}`, `id: ${data.event_id}`]);
        seen.push(data);
      }
      if (seen.length >= count) break;
    }
    cut.abort();
    return seen.slice(0, count);
  };

  it('has the same ids when it is read again, resumes after `since`, and includes runs of the v1 API', async () => {
    const threadId = randomUUID();
    await ask(threadId, { id: 1, method: 'run.start', params: { assistant_id: 'steps', input: { steps: 2 } } });
    const body = { channels: ['values', 'updates', 'lifecycle', 'custom:no'] };
    const first = await read(threadId, body, 7);
    expect(first.map(({ method }) => method).sort()).toEqual(
      ['lifecycle', 'lifecycle', 'updates', 'updates', 'values', 'values', 'values'].sort(),
    );
    const again = await read(threadId, body, 7);
    expect(again).toEqual(first);
    expect(await read(threadId, { ...body, since: first[2]?.seq }, 4)).toEqual(first.slice(3));

    const older = { assistant_id: 'steps', input: { steps: 1 }, stream_mode: ['updates'], stream_resumable: true };
    await agents.ask('POST', `/threads/${threadId}/runs/wait`, older);
    const shown = await read(threadId, body, 3);
    expect(shown.map(({ method }) => method)).toEqual(['lifecycle', 'updates', 'lifecycle']);
    expect(shown[0]?.seq).toBeGreaterThan(first[6]?.seq ?? 0);
  });

  it('lists the interrupts that a run answers by id, unless it replays an ended run; lifecycle events name their run', async () => {
    const threadId = randomUUID();
    await agents.client.threads.create({ threadId });
    await agents.client.runs.wait(threadId, 'both', { input: { answers: [] } });
    const { interrupts } = await agents.client.threads.get(threadId);
    const [first, second] = Object.values(interrupts).map(([open]) => open?.id);
    const answer = (id: string | undefined) => ({ assistant_id: 'both', command: { resume: { [String(id)]: 'yes' } } });
    const waitFor = async (body: object) => {
      const response = await agents.ask('POST', `/threads/${threadId}/runs/wait`, body);
      await response.text();
      return response.headers.get('content-location')?.split('/').at(-1);
    };
    const body = { channels: ['input', 'lifecycle'] };
    const runId = await waitFor(answer(first));
    const [running, ended] = await read(threadId, body, 2);
    const ids = [running, ended].map((event) => ({ event_id: `synth:${runId}:${event?.seq}` }));
    expect([running, ended]).toMatchObject(ids);
    await waitFor({ ...answer(second), stream_resumable: true });
    const after = await read(threadId, { ...body, since: ended?.seq }, 3);
    expect(after.map(({ method, params }) => [method, params.data])).toMatchObject([
      ['lifecycle', { event: 'running' }],
      ['input.answered', { interrupt_ids: [second] }],
      ['lifecycle', { event: 'completed' }],
    ]);
    expect(await read(threadId, body, 2)).toEqual([after[0], after[2]]);
  });

  it('is rejected for unknown channels', async () => {
    const answer = await agents.ask('POST', `/threads/${randomUUID()}/stream/events`, { channels: ['nonsense'] });
    expect(answer.status).toBe(422);
  });
});

describe('a command', () => {
  it.each([
    ['text', '"hello"', null],
    ['no id', '{"method":"run.start"}', null],
    ['no method', '{"id":7}', 7],
    ['a negative id', '{"id":-1,"method":"run.start"}', null],
  ])('is rejected with 400 for an invalid envelope: %s', async (_what, text, id) => {
    const { status, body } = await ask(randomUUID(), JSON.parse(text));
    expect([status, body]).toEqual([
      400,
      { type: 'error', id, error: 'invalid_argument', message: expect.any(String) },
    ]);
  });

  it.each([
    ['no.such', {}, 'unknown_command'],
    ['constructor', {}, 'unknown_command'],
    ['state.fork', { checkpoint_id: 'a' }, 'invalid_argument'],
    ['state.listCheckpoints', { namespace: [] }, 'invalid_argument'],
    ['input.inject', { namespace: [], message: { role: 'user', content: 'hello' } }, 'not_supported'],
    ['subscription.reconnect', { run_id: 'a' }, 'not_supported'],
    ['subscription.subscribe', { channels: ['values'] }, 'not_supported'],
    ['run.start', {}, 'invalid_argument'],
    ['run.start', { assistant_id: 'no-such-graph' }, 'invalid_argument'],
    [
      'run.start',
      { assistant_id: 'echo', langsmith_tracer: { project_name: randomBytes(1_500).toString('hex') } },
      'invalid_argument',
    ],
    ['run.start', { assistant_id: 'echo', langsmith_tracer: { project_name: 'a\0' } }, 'invalid_argument'],
    ['run.start', { assistant_id: 'echo', config: { configurable: { checkpoint_id: '1ef' } } }, 'no_such_checkpoint'],
    ['state.get', { namespace: [] }, 'invalid_argument'],
    ['input.respond', { interrupt_id: 'a', response: 1 }, 'invalid_argument'],
  ])('%s %o fails with %s', async (method, params, error) => {
    const { status, body } = await ask(randomUUID(), { id: 3, method, params });
    expect([status, body]).toEqual([200, { type: 'error', id: 3, error, message: expect.any(String) }]);
  });

  it('returns the tree of a graph and its state', async () => {
    const threadId = randomUUID();
    const { body } = await ask(threadId, { id: 1, method: 'run.start', params: { assistant_id: 'parent', input: {} } });
    expect(body).toMatchObject({ type: 'success', id: 1, meta: { thread_id: threadId } });
    const { run_id: runId } = body.result as { run_id: string };
    await agents.client.runs.join(threadId, runId);
    const tree = await ask(threadId, { id: 2, method: 'agent.getTree' });
    const child = { graph_name: 'child', status: 'completed' };
    const root = { graph_name: 'parent', status: 'completed', children: [child] };
    expect(tree.body).toMatchObject({ result: { tree: root } });
    await agents.client.runs.wait(threadId, 'burst', { input: { n: 1 } });
    const getRunTree = (run_id: string) => ask(threadId, { id: 3, method: 'agent.getTree', params: { run_id } });
    expect((await getRunTree(runId)).body).toMatchObject({ result: (tree.body as { result: object }).result });
    expect((await getRunTree(randomUUID())).body).toMatchObject({ type: 'error', error: 'no_such_run' });
    const unknownNamespaceAnswer = await ask(threadId, {
      id: 4,
      method: 'state.get',
      params: { namespace: ['nowhere'] },
    });
    expect(unknownNamespaceAnswer.body).toMatchObject({ type: 'error', error: 'no_such_namespace' });
  });
});
