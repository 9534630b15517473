import { setTimeout as delay } from 'node:timers/promises';
import { describe, expect, test, vi } from 'vitest';
import { openPoolUnderTest } from '../../../agents/pool-under-test.ts';
import { forSuite } from '../../../for-suite.ts';

const under = forSuite(() => openPoolUnderTest('basic', { maxEventBytes: 100_000 }));

const waitOptions = { timeout: 20_000 };
const userMessage = (text: string) => ({ messages: [{ role: 'user', content: text }] });
const stream = (...modes: string[]) => ({ stream_mode: modes });

describe('modes', () => {
  test('streams values if no mode is requested; messages are flat', async () => {
    const { received, outcome } = await under.run('echo', { input: userMessage('hi'), kwargs: stream() });
    expect(received.map(({ event, mode }) => [event, mode])).toEqual([
      ['values', 'values'],
      ['values', 'values'],
    ]);
    expect(received[1]?.data.messages).toMatchObject([
      { type: 'human', content: 'hi' },
      { type: 'ai', content: 'echo: hi' },
    ]);
    expect(outcome).toMatchObject({ kind: 'finished', next: [], interrupts: {} });
    expect(outcome.kind === 'finished' && JSON.parse(outcome.values)).toEqual(received[1]?.data);
  });

  test('messages-tuple: chunks of a message, each with its metadata', async () => {
    const { received } = await under.run('chat', { input: userMessage('hi'), kwargs: stream('messages-tuple') });
    expect(new Set(received.map(({ event, mode }) => `${event} ${mode}`))).toEqual(
      new Set(['messages messages-tuple']),
    );
    expect(received.map(({ data }) => data[0].content).join('')).toBe('Good day.');
    expect(received[0]?.data).toMatchObject([{ type: 'AIMessageChunk' }, { langgraph_node: 'model' }]);
  });

  test('messages: metadata, partial messages, complete messages', async () => {
    const { received } = await under.run('chat', { input: userMessage('hi'), kwargs: stream('messages') });
    const id = received[1] && Object.keys(received[1].data)[0];
    expect(received.map(({ event }) => event)).toEqual([
      'messages/complete',
      'messages/metadata',
      ...Array<string>(9).fill('messages/partial'),
      'messages/complete',
    ]);
    expect(received[1]?.data[id!].metadata).toMatchObject({ langgraph_node: 'model' });
    expect(received.slice(2, 5).map(({ data }) => data[0].content)).toEqual(['G', 'Go', 'Goo']);
    expect(received.at(-1)?.data).toMatchObject([{ content: 'Good day.', id }]);
  });

  test('several modes at once, each event under its own name', async () => {
    const { received } = await under.run('steps', {
      input: { steps: 1 },
      kwargs: stream('custom', 'updates', 'tasks'),
    });
    expect(received.map(({ event }) => event)).toEqual(['tasks', 'custom', 'updates', 'tasks']);
    expect(received[2]?.data).toEqual({ step: { count: 1, log: ['step 1'] } });
    expect(received[3]?.data).toMatchObject({ name: 'step', interrupts: [] });
  });

  test('checkpoints and debug name the checkpoint of each state, without internal configuration', async () => {
    const { received, threadId } = await under.run('steps', {
      input: { steps: 1 },
      kwargs: stream('checkpoints', 'debug'),
    });
    const checkpoints = received.filter(({ event }) => event === 'checkpoints').map(({ data }) => data);
    expect(checkpoints.map(({ metadata }) => metadata.source)).toEqual(['input', 'loop', 'loop']);
    expect(checkpoints.at(-1)).toMatchObject({
      values: { count: 1, log: ['step 1'] },
      next: [],
      checkpoint: { thread_id: threadId, checkpoint_ns: '' },
      parent_checkpoint: checkpoints.at(-2)?.checkpoint,
    });
    expect(Object.keys(checkpoints[0].config.configurable)).toEqual(['thread_id', 'checkpoint_id', 'checkpoint_ns']);
    const debug = received.filter(({ event }) => event === 'debug').map(({ data }) => data);
    expect(debug.map(({ type }) => type)).toEqual(['checkpoint', 'checkpoint', 'task', 'task_result', 'checkpoint']);
    expect(debug.at(-1).payload.checkpoint).toEqual(checkpoints.at(-1).checkpoint);
    expect(JSON.stringify(received)).not.toContain(`${under.threads.deploymentId}:`);
  });

  test('events: callbacks of all runs inside, together with other modes', async () => {
    const { received } = await under.run('chat', { input: userMessage('hi'), kwargs: stream('events', 'values') });
    const events = received.filter(({ event }) => event === 'events').map(({ data }) => data);
    const inside = events.map(({ event }) => event);
    const root = events.find(({ event }) => event === 'on_chain_start')?.run_id;
    expect(events.filter(({ event, run_id }) => event === 'on_chain_stream' && run_id === root)).toEqual([]);
    expect(root).toEqual(expect.any(String));
    expect(inside).toEqual(expect.arrayContaining(['on_chain_start', 'on_chat_model_stream', 'on_chain_end']));
    expect(received.filter(({ event }) => event === 'values')).toHaveLength(2);
  });

  test('tools: start and end of each tool call', async () => {
    const { received } = await under.run('tools', { input: userMessage('add'), kwargs: stream('tools') });
    expect(received.map(({ data }) => [data.event, data.name])).toEqual([
      ['on_tool_start', 'add'],
      ['on_tool_end', 'add'],
    ]);
  });

  test('subgraphs have a namespace', async () => {
    const { received } = await under.run('parent', { kwargs: { ...stream('updates', 'custom'), subgraphs: true } });
    expect(received.map(({ event, namespace }) => [event, namespace.split(':')[0]])).toEqual([
      ['updates', ''],
      ['custom', 'child'],
      ['updates', 'child'],
      ['updates', 'child'],
      ['updates', ''],
    ]);
  });
});

describe('input', () => {
  test('an interrupt, and the command that resumes it', async () => {
    const first = await under.run('ask', { input: { question: 'Sure?' }, kwargs: stream('values', 'updates') });
    const { outcome, threadId } = first;
    expect(outcome).toMatchObject({ kind: 'finished', next: ['ask'] });
    const interrupts = outcome.kind === 'finished' ? Object.values(outcome.interrupts) : [];
    expect(interrupts).toMatchObject([[{ value: { question: 'Sure?' } }]]);
    expect(first.received.at(-1)?.data.__interrupt__).toEqual(interrupts[0]);
    expect(await under.values('ask', { thread: threadId, kwargs: { command: { resume: 'yes' } } })).toEqual({
      question: 'Sure?',
      answer: 'yes',
      result: 'answered: yes',
    });
  });

  test('an interrupt inside a subgraph', async () => {
    const { outcome, threadId } = await under.run('parent', { input: { ask: true } });
    expect(outcome).toMatchObject({ kind: 'finished', next: ['child'] });
    const values = await under.values('parent', { thread: threadId, kwargs: { command: { resume: 'in' } } });
    expect(values.path.slice(-2)).toEqual(['inner', 'in']);
  });

  test('command update and goto', async () => {
    const { threadId } = await under.run('ask', {});
    const command = { update: { answer: 'given' }, goto: 'finish' };
    expect(await under.values('ask', { thread: threadId, kwargs: { command } })).toMatchObject({
      result: 'answered: given',
    });
    const other = await under.run('ask', {});
    const sent = { goto: [{ node: 'finish', input: { answer: 'sent' } }] };
    expect(await under.values('ask', { thread: other.threadId, kwargs: { command: sent } })).toMatchObject({
      result: 'answered: sent',
    });
  });

  test('interrupt_before and interrupt_after', async () => {
    const { outcome } = await under.run('steps', { kwargs: { interrupt_before: ['step'] } });
    expect(outcome).toMatchObject({ kind: 'finished', next: ['step'], interrupts: {} });
    const after = await under.run('steps', { kwargs: { interrupt_after: '*' } });
    expect(after.outcome).toMatchObject({ kind: 'finished', next: ['step'] });
    expect(await under.run('pausing')).toMatchObject({ outcome: { next: ['second'] } });
  });

  test.each(['sync', 'async', 'exit'] as const)('durability %s keeps the state', async (durability) => {
    const { threadId } = await under.run('steps', { input: { steps: 2 }, kwargs: { durability } });
    const state = await under.threads.database.query<{ step: string }>(
      `SELECT metadata ->> 'step' AS step FROM agents.checkpoints WHERE thread_id = $1 ORDER BY checkpoint_id`,
      [`${under.threads.deploymentId}:${threadId}`],
    );
    expect(state.map(({ step }) => step)).toEqual(durability === 'exit' ? ['2'] : ['-1', '0', '1', '2']);
    expect(await under.values('steps', { thread: threadId, input: { steps: 2 } })).toMatchObject({ count: 4 });
  });

  test('a fork, a start without the stored state, and a continuation', async () => {
    const { threadId: thread, received } = await under.run('steps', {
      input: { steps: 2 },
      kwargs: stream('checkpoints'),
    });
    const checkpointAtCountOne = received.find(({ data }) => data.values.count === 1)?.data.checkpoint;
    const { checkpoint_id } = checkpointAtCountOne;
    expect(
      await under.values('steps', {
        thread,
        input: { steps: 3, text: 'forked' },
        job: { start: { kind: 'input', checkpoint: { checkpoint_id } } },
      }),
    ).toMatchObject({ log: ['step 1', 'forked 2', 'forked 3'] });
    expect(
      await under.values('steps', {
        thread,
        input: { steps: 2, text: 'new' },
        job: { start: { kind: 'input', checkpoint: 'none' } },
      }),
    ).toMatchObject({ log: ['new 1', 'new 2'] });
    await under.run('steps', { thread, input: { text: 'on' }, kwargs: { interrupt_before: ['step'] } });
    expect(await under.values('steps', { thread, job: { start: { kind: 'continue' } } })).toMatchObject({
      log: ['new 1', 'new 2', 'on 3', 'on 4'],
    });
    const gone = { checkpoint_id: '1ef00000-0000-6000-8000-000000000000' };
    const { outcome } = await under.run('steps', { thread, job: { start: { kind: 'input', checkpoint: gone } } });
    expect(outcome).toMatchObject({ kind: 'failed', error: 'CheckpointNotFound' });
  });

  test('context, config and graph factories', async () => {
    const context = { tone: 'dry' };
    expect(await under.values('typed', { input: { topic: 'rain' }, kwargs: { context } })).toMatchObject({
      joke: 'a dry joke about rain',
    });
    const config = (node: string) => ({ config: { configurable: { node, style: 'loud' } } });
    const { received } = await under.run('tailored', {
      input: { text: 'x' },
      kwargs: { ...config('own'), ...stream('updates') },
    });
    expect(received.map(({ data }) => data)).toEqual([{ own: { answer: 'loud: x' } }]);
    const refused = await under.run('tailored', { kwargs: config('refused') });
    expect(refused.outcome).toMatchObject({ kind: 'failed', error: 'Error', message: 'no such node' });
    const endless = await under.run('steps', { input: { steps: 99 }, kwargs: { config: { recursion_limit: 3 } } });
    expect(endless.outcome).toMatchObject({ kind: 'failed', error: 'GraphRecursionError' });
    expect(endless.outcome.kind === 'failed' && JSON.parse(endless.outcome.values!)).toMatchObject({ count: 3 });
  });

  test.each([['builder'], ['promised'], ['plain', 'default'], ['remembering']])(
    'runs the graph %s',
    async (graph, seen = graph) => {
      expect(await under.values(graph)).toEqual({ seen });
    },
  );

  test('graph code sees allowed variables and those of the file, and none of Runlake', async () => {
    const { seen } = await under.values('environment');
    const names = seen.map((line: string) => line.split('=')[0]);
    expect(names).toContain('PATH');
    expect(seen).toContain('GREETING=hello from the file');
    expect(names.filter((name: string) => /RUNLAKE|VITEST|DATABASE|NODE_CHANNEL/.test(name))).toEqual([]);
  });
});

describe('failures of a graph', () => {
  const misbehave = (how: string) => under.run('misbehave', { input: { how }, kwargs: stream('custom') });

  test('a node that throws', async () => {
    const { outcome, received } = await misbehave('fail');
    expect(outcome).toMatchObject({ kind: 'failed', error: 'TypeError', message: 'the node failed on purpose' });
    expect(received).toMatchObject([{ data: { doing: 'fail' } }]);
  });

  test.each([
    ['large', 'EventTooLarge', 'the limit is'],
    ['circular', 'EventNotSerializable', 'circular'],
  ])('an event that is %s is replaced by a warning, and the run continues', async (how, error, message) => {
    const { outcome, received } = await misbehave(how);
    expect(outcome.kind).toBe('finished');
    expect(received[1]).toMatchObject({ event: 'warning', data: { error, message: expect.stringContaining(message) } });
  });

  test('a graph that does not exist', async () => {
    expect((await under.run('none')).outcome).toMatchObject({ kind: 'failed', error: 'GraphUnusable' });
  });

  test('a lost lease', async () => {
    const started = await under.start('steps', { input: { steps: 50, pauseMs: 20 }, kwargs: stream('custom') });
    await vi.waitFor(() => expect(started.received.length).toBeGreaterThan(1), waitOptions);
    await under.threads.startAgain(started);
    expect(await started.handle.outcome).toEqual({ kind: 'fenced' });
    expect(under.pool.freeSlots).toBe(8);
  });
});

describe('stopping', () => {
  test('a cancel takes effect at once', async () => {
    const { handle, received } = await under.start('steps', { input: { pauseMs: 60_000 } });
    await vi.waitFor(() => expect(received).toHaveLength(1), waitOptions);
    const startedAtMs = performance.now();
    handle.cancel();
    expect(await handle.outcome).toEqual({
      kind: 'cancelled',
      values: expect.stringContaining('"pauseMs":60000'),
      interrupts: {},
    });
    expect(performance.now() - startedAtMs).toBeLessThan(3_000);
    // The node that is still running does not end the process.
    expect(await under.values('steps')).toMatchObject({ count: 3 });
    expect(under.pool.freeSlots).toBe(8);
  });

  test('the timeout of a run', async () => {
    const { outcome } = await under.run('steps', { input: { pauseMs: 60_000 }, job: { timeoutMs: 200 } });
    expect(outcome).toEqual({
      kind: 'timeout',
      values: expect.stringContaining('"pauseMs":60000'),
      interrupts: {},
    });
  });

  test('a failure of the event log', async () => {
    const take = () => Promise.reject(new Error('the log is gone'));
    const { outcome } = await under.run('burst', { input: { n: 2_000, pauseMs: 1 }, kwargs: stream('custom'), take });
    expect(outcome).toMatchObject({ kind: 'cancelled' });
  });
});

test('a slow event log exerts backpressure on the graph, and receives all events in order', async () => {
  const sizes: number[] = [];
  const { received, outcome } = await under.run('burst', {
    input: { n: 1_500, bytes: 10_000 },
    kwargs: stream('custom'),
    take: async (chunks) => {
      sizes.push(chunks.reduce((sum, { data }) => sum + data.byteLength, 0));
      await delay(5);
    },
  });
  expect(outcome.kind).toBe('finished');
  expect(received.map(({ data }) => data.i)).toEqual(Array.from({ length: 1_500 }, (_, i) => i));
  expect(Math.max(...sizes)).toBeLessThanOrEqual(4 * 1024 * 1024 + 20_000);
});

test('the throughput does not drop with the number of events per turn of the event loop', {
  timeout: 180_000,
}, async () => {
  const measureSeconds = async (perTurn: number) => {
    const startedAtMs = performance.now();
    let taken = 0;
    const { outcome } = await under.run('burst', {
      input: { n: 200_000, perTurn },
      kwargs: stream('custom'),
      take: async (chunks) => {
        taken += chunks.length;
      },
    });
    expect(outcome.kind).toBe('finished');
    expect(taken).toBe(200_000);
    return (performance.now() - startedAtMs) / 1_000;
  };
  const few = await measureSeconds(500);
  expect(await measureSeconds(10_000)).toBeLessThan(4 * few + 2);
});
