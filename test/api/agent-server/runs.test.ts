import { randomUUID } from 'node:crypto';
import { Client } from '@langchain/langgraph-sdk';
import { describe, expect, it } from 'vitest';
import { WebhookReceiver } from '../../crash/webhook-receiver.ts';
import { shareDeployedAgents } from './start-agents-as-deployed.ts';

/** Runs on threads, through the stock client. */

const { server, client } = shareDeployedAgents();

const newThread = async () => (await client.threads.create()).thread_id;
const statusOf = async (threadId: string, runId: string) => (await client.runs.get(threadId, runId)).status;
/** Returns the request for a run that takes seconds and can be cancelled. */
const slow = (text: string, pauseMs = 60_000) => ({ input: { steps: 1, pauseMs, text } });
const running = (threadId: string, runId: string) =>
  expect.poll(() => statusOf(threadId, runId), { timeout: 10_000 }).toBe('running');

describe('a run on a thread', () => {
  it('is created, executed and read; its state stays on the thread', async () => {
    const threadId = await newThread();
    const made = await client.runs.create(threadId, 'steps', {
      input: { steps: 2, text: 'a' },
      metadata: { colour: 'red' },
      config: { tags: ['one'], recursion_limit: 30, configurable: { mine: 1 } },
    });
    expect(made).toMatchObject({
      thread_id: threadId,
      status: 'pending',
      multitask_strategy: 'enqueue',
      metadata: { colour: 'red' },
      kwargs: {
        input: { steps: 2, text: 'a' },
        stream_mode: ['values'],
        durability: 'async',
        temporary: false,
        config: {
          tags: ['one'],
          recursion_limit: 30,
          configurable: {
            mine: 1,
            run_id: made.run_id,
            thread_id: threadId,
            graph_id: 'steps',
            user_id: server.owner.userId,
          },
        },
      },
    });
    expect(await client.runs.join(threadId, made.run_id)).toMatchObject({ log: ['a 1', 'a 2'] });
    expect(await client.runs.get(threadId, made.run_id)).toMatchObject({ status: 'success' });
    expect(await client.threads.get(threadId)).toMatchObject({
      status: 'idle',
      metadata: { graph_id: 'steps' },
      values: { log: ['a 1', 'a 2'] },
    });
    // A join after the end responds with the stored state.
    expect(await client.runs.join(threadId, made.run_id)).toMatchObject({ count: 2 });
  });

  it('merges its config over that of its assistant, and gets headers but no keys', async () => {
    const assistant = await client.assistants.create({
      graphId: 'tailored',
      config: { tags: ['base'], configurable: { style: 'dry', node: 'speak' } },
    });
    const answer = await server.ask('POST', '/runs/wait', {
      assistant_id: assistant.assistant_id,
      input: { text: 'hello' },
      config: { tags: ['more'], configurable: { style: 'warm' } },
    });
    expect(await answer.json()).toMatchObject({ answer: 'warm: hello' });
    const threadId = await newThread();
    const tenant = String(server.owner.workspaceIds[0]);
    const defaultHeaders = { 'x-forwarded-user': 'jane', 'x-tenant-id': tenant, 'user-agent': 'mine' };
    const own = new Client({ apiUrl: server.url, apiKey: server.owner.adminKey, defaultHeaders });
    const { kwargs } = (await own.runs.create(threadId, assistant.assistant_id, {
      ...{ input: {}, afterSeconds: 600, config: { tags: ['more'] } },
    })) as unknown as { kwargs: { config: { configurable: object } } };
    expect(kwargs.config).toMatchObject({
      tags: ['base', 'more'],
      configurable: {
        ...{ 'user-agent': 'mine', style: 'dry', langgraph_auth_user_id: server.owner.userId },
        langgraph_auth_user: { identity: server.owner.userId },
        langgraph_auth_permissions: [],
      },
    });
    expect(Object.keys(kwargs.config.configurable)).not.toContain('x-api-key');
    expect(Object.keys(kwargs.config.configurable)).not.toContain('x-tenant-id');
    expect(Object.keys(kwargs.config.configurable)).not.toContain('x-forwarded-user');
  });

  it('can be waited for; the client raises its error, and the thread has status error', async () => {
    const threadId = await newThread();
    expect(
      await client.runs.wait(threadId, 'echo', { input: { messages: [{ role: 'user', content: 'hi' }] } }),
    ).toMatchObject({ messages: [{ type: 'human' }, { type: 'ai', content: 'echo: hi' }] });
    await expect(client.runs.wait(threadId, 'misbehave', { input: { how: 'fail' } })).rejects.toThrow(
      'TypeError: the node failed on purpose',
    );
    const [run] = await client.runs.list(threadId);
    expect(run).toMatchObject({ status: 'error' });
    expect(await client.threads.get(threadId)).toMatchObject({ status: 'error' });
    // A client that joins a failed run gets the same error.
    expect(await client.runs.join(threadId, run!.run_id)).toMatchObject({ __error__: { error: 'TypeError' } });
  });

  it.each(['async', 'sync'] as const)(
    'fails once if a node writes state of another thread, with durability %s',
    async (durability) => {
      const threadId = await newThread();
      const request = { input: { how: 'elsewhere' }, streamMode: 'custom' as const, durability };
      const events = [];
      for await (const { event, data } of client.runs.stream(threadId, 'misbehave', request)) {
        if (event !== 'metadata') events.push([event, data]);
      }
      expect(events).toEqual([
        ['custom', { doing: 'elsewhere' }],
        ['error', { error: 'StateNotOwn', message: expect.stringContaining('only to its own thread') }],
      ]);
      expect(await client.runs.list(threadId)).toMatchObject([{ status: 'error' }]);
    },
  );

  it('keeps connections alive that wait for it or join it', async () => {
    const threadId = await newThread();
    const wait = server.ask('POST', `/threads/${threadId}/runs/wait`, { assistant_id: 'steps', ...slow('x', 900) });
    await expect.poll(() => client.runs.list(threadId), { timeout: 10_000 }).toHaveLength(1);
    const [run] = await client.runs.list(threadId);
    const join = server.ask('GET', `/threads/${threadId}/runs/${run!.run_id}/join`);
    for (const answer of [await wait, await join]) expect(await answer.text()).toMatch(/^\n+\{.*"log":\["x 1"\]/);
  });

  it('sends its webhook once, signed, with every status', async () => {
    const receiver = await WebhookReceiver.open();
    receiver.answers = true;
    const webhook = receiver.url;
    const cancelled = await client.runs.create(await newThread(), 'steps', { ...slow('x'), webhook });
    await running(cancelled.thread_id, cancelled.run_id);
    await client.runs.cancel(cancelled.thread_id, cancelled.run_id);
    const successfulRun = await client.runs.create(await newThread(), 'steps', { ...slow('x', 0), webhook });
    const failed = await client.runs.create(await newThread(), 'misbehave', { input: { how: 'fail' }, webhook });
    const ends = () => receiver.received.map(({ body }) => JSON.parse(body) as Record<string, unknown>);
    await expect.poll(() => ends().length, { timeout: 20_000 }).toBe(3);
    const of = (run: { readonly run_id: string }) => ends().find(({ run_id: id }) => id === run.run_id);
    expect(of(cancelled)).toMatchObject({ status: 'interrupted' });
    expect(of(successfulRun)).toMatchObject({
      status: 'success',
      values: { log: ['x 1'] },
      webhook_sent_at: expect.any(String),
    });
    expect(of(failed)).toMatchObject({ status: 'error', error: expect.stringContaining('on purpose') });
    expect(receiver.received.map(({ isSigned }) => isSigned)).toEqual([true, true, true]);
  });

  it('returns its location before it ends', async () => {
    const threadId = await newThread();
    const body = { assistant_id: 'steps', ...slow('x') };
    const disconnect = new AbortController();
    const response = await fetch(`${server.url}/threads/${threadId}/runs/wait`, {
      method: 'POST',
      headers: { 'x-api-key': server.owner.adminKey, 'content-type': 'application/json' },
      body: JSON.stringify({ ...body, on_disconnect: 'cancel' }),
      signal: disconnect.signal,
    });
    const [, runId] = /^\/threads\/[^/]+\/runs\/([^/]+)$/.exec(response.headers.get('content-location') ?? '') ?? [];
    await running(threadId, runId!);
    disconnect.abort();
    await expect.poll(() => statusOf(threadId, runId!)).toBe('interrupted');
  });

  it('is listed newest first, by status, in pages, with selected fields', async () => {
    const threadId = await newThread();
    const ids: string[] = [];
    for (const text of ['1', '2', '3']) {
      const { run_id } = await client.runs.create(threadId, 'steps', { input: { text, steps: 1 } });
      ids.unshift(run_id);
    }
    const later = await client.runs.create(threadId, 'steps', { afterSeconds: 600 });
    expect((await client.runs.list(threadId)).map((run) => run.run_id)).toEqual([later.run_id, ...ids]);
    expect((await client.runs.list(threadId, { limit: 2, offset: 1 })).map((run) => run.run_id)).toEqual(
      ids.slice(0, 2),
    );
    await client.runs.join(threadId, ids[0]!);
    expect((await client.runs.list(threadId, { status: 'success' })).map((run) => run.run_id)).toEqual(ids);
    const [chosen] = await client.runs.list(threadId, { select: ['run_id', 'status'] });
    expect(chosen).toEqual({ run_id: later.run_id, status: 'pending' });
    await client.runs.delete(threadId, later.run_id);
    await expect(client.runs.get(threadId, later.run_id)).rejects.toThrow('404');
  });

  it('is delayed by after_seconds', async () => {
    const threadId = await newThread();
    const startedAtMs = Date.now();
    const run = await client.runs.create(threadId, 'steps', { input: { steps: 1 }, afterSeconds: 1 });
    expect(Date.parse(run.created_at)).toBeLessThan(startedAtMs + 900);
    expect(await client.runs.join(threadId, run.run_id)).toMatchObject({ count: 1 });
    expect(Date.now() - startedAtMs).toBeGreaterThanOrEqual(1_000);
  });
});

describe('a missing thread', () => {
  it('responds 404, or is created if requested', async () => {
    const threadId = randomUUID();
    const input = { steps: 1 };
    await expect(client.runs.wait(threadId, 'steps', { input })).rejects.toThrow('404');
    expect(await client.runs.wait(threadId, 'steps', { input, ifNotExists: 'create' })).toMatchObject({ count: 1 });
    expect(await client.threads.get(threadId)).toMatchObject({ status: 'idle' });
  });
});

describe('a busy thread', () => {
  it('rejects a run', async () => {
    const threadId = await newThread();
    const first = await client.runs.create(threadId, 'steps', slow('first'));
    await expect(client.runs.create(threadId, 'steps', { multitaskStrategy: 'reject' })).rejects.toThrow('409');
    await client.runs.cancel(threadId, first.run_id, true);
    const after = await client.runs.wait(threadId, 'steps', {
      input: { steps: 1, pauseMs: 0 },
      multitaskStrategy: 'reject',
    });
    expect(after).toMatchObject({ count: 1 });
  });

  it('enqueues runs in order', async () => {
    const threadId = await newThread();
    const runs = [];
    for (const text of ['a', 'b', 'c'])
      runs.push(await client.runs.create(threadId, 'steps', { input: { steps: 1, text } }));
    const last = await client.runs.join(threadId, runs[2]!.run_id);
    expect(last).toMatchObject({ log: ['a 1', 'b 2', 'c 3'] });
  });

  it('interrupts the current run: stored state stays, and the next run continues from it', async () => {
    const threadId = await newThread();
    const first = await client.runs.create(threadId, 'steps', { input: { steps: 3, pauseMs: 600, text: 'a' } });
    await expect
      .poll(async () => (await client.threads.getState<{ log?: string[] }>(threadId)).values?.log?.length ?? 0, {
        timeout: 10_000,
      })
      .toBeGreaterThan(0);
    const input = { steps: 1, pauseMs: 0, text: 'b' };
    const values = (await client.runs.wait(threadId, 'steps', { input, multitaskStrategy: 'interrupt' })) as {
      log: string[];
    };
    expect(await statusOf(threadId, first.run_id)).toBe('interrupted');
    expect(values.log[0]).toBe('a 1');
    expect(values.log.at(-1)).toMatch(/^b /);
  });

  it('rolls back the current run with its stored state', async () => {
    const threadId = await newThread();
    await client.runs.wait(threadId, 'steps', { input: { steps: 1, text: 'kept' } });
    const before = await client.threads.getHistory(threadId);
    const second = await client.runs.create(threadId, 'steps', { input: { steps: 3, pauseMs: 600, text: 'gone' } });
    await expect
      .poll(async () => JSON.stringify((await client.threads.getState(threadId)).values), { timeout: 10_000 })
      .toContain('gone');
    const input = { steps: 1, pauseMs: 0, text: 'new' };
    const values = await client.runs.wait(threadId, 'steps', { input, multitaskStrategy: 'rollback' });
    expect(values).toMatchObject({ log: ['kept 1', 'new 2'] });
    await expect.poll(() => client.runs.get(threadId, second.run_id).catch(String)).toContain('404');
    const history = await client.threads.getHistory(threadId, { limit: 100 });
    expect(history.slice(-before.length)).toEqual(before);
    expect(JSON.stringify(history)).not.toContain('gone 2');
  });
});

describe('cancel', () => {
  it('responds at once, or waits for the end', async () => {
    const threadId = await newThread();
    const run = await client.runs.create(threadId, 'steps', slow('a'));
    await running(threadId, run.run_id);
    const path = `/threads/${threadId}/runs/${run.run_id}/cancel`;
    expect((await server.ask('POST', `${path}?wait=0`)).status).toBe(202);
    expect((await server.ask('POST', `${path}?wait=1`)).status).toBe(204);
    expect(await statusOf(threadId, run.run_id)).toBe('interrupted');
    expect(await client.threads.get(threadId)).toMatchObject({ status: 'idle' });
  });

  it('rolls back', async () => {
    const threadId = await newThread();
    const run = await client.runs.create(threadId, 'steps', slow('a'));
    await running(threadId, run.run_id);
    await client.runs.cancel(threadId, run.run_id, true, 'rollback');
    await expect.poll(() => client.runs.get(threadId, run.run_id).catch(String)).toContain('404');
    expect((await client.threads.getState(threadId)).values ?? {}).toEqual({});
    expect((await client.threads.get(threadId)).values ?? {}).toEqual({});
  });

  it('rolls back a run that was interrupted before, and the next run does not continue from it', async () => {
    const threadId = await newThread();
    await client.runs.wait(threadId, 'steps', { input: { steps: 1, text: 'kept' } });
    const run = await client.runs.create(threadId, 'steps', { input: { steps: 50, pauseMs: 100, text: 'dropped' } });
    const log = async () => JSON.stringify((await client.threads.getState(threadId)).values);
    await expect.poll(log, { timeout: 20_000 }).toContain('dropped');
    const path = `/threads/${threadId}/runs/${run.run_id}/cancel`;
    const answers = await Promise.all([
      server.ask('POST', `${path}?action=interrupt`),
      server.ask('POST', `${path}?action=rollback`),
    ]);
    // Only the second cancel may be refused, because it may come too late.
    expect(answers.map(({ status }) => status)).toEqual([202, expect.toBeOneOf([202, 409])]);
    await expect.poll(async () => (await client.threads.get(threadId)).status).toBe('idle');
    if (answers[1]?.status === 202) expect(await log()).not.toContain('dropped');
    const next = await client.runs.create(threadId, 'steps', { input: { steps: 50, pauseMs: 100, text: 'dropped' } });
    await expect.poll(log, { timeout: 20_000 }).toContain('dropped');
    await client.runs.wait(threadId, 'steps', { input: { steps: 1, text: 'last' }, multitaskStrategy: 'rollback' });
    await expect.poll(() => client.runs.get(threadId, next.run_id).catch(String)).toContain('404');
    expect(await log()).toContain('last');
  });

  it('cancels pending runs, and many at once', async () => {
    const threadId = await newThread();
    const runs = [];
    for (const text of ['a', 'b', 'c']) runs.push(await client.runs.create(threadId, 'steps', slow(text)));
    const [first, second, third] = runs.map((run) => run.run_id) as [string, string, string];
    await running(threadId, first);
    await client.runs.cancelMany({ threadId, runIds: [second] });
    expect(await statusOf(threadId, second)).toBe('interrupted');
    expect(await client.runs.join(threadId, second)).toEqual({});
    await client.runs.cancelMany({ status: 'pending' });
    expect(await statusOf(threadId, third)).toBe('interrupted');
    expect(await statusOf(threadId, first)).toBe('running');
    await client.runs.cancelMany({ status: 'all' });
    await expect.poll(() => statusOf(threadId, first)).toBe('interrupted');
    const bad = await server.ask('POST', '/runs/cancel', { status: 'all', thread_id: threadId });
    expect(bad.status).toBe(422);
  });
});

describe('durability', () => {
  it.each([
    ['exit', 1],
    ['async', 4],
    ['sync', 4],
  ] as const)('%s stores %i states', async (durability, states) => {
    const threadId = await newThread();
    await client.runs.wait(threadId, 'steps', { input: { steps: 2 }, durability });
    expect(await client.threads.getHistory(threadId, { limit: 100 })).toHaveLength(states);
  });
});

describe('an invalid request', () => {
  it.each<[string, string, object, number, unknown]>([
    ['no assistant', '/runs', {}, 422, ['body', 'assistant_id']],
    ['an unknown graph', '/runs', { assistant_id: 'nowhere' }, 404, undefined],
    [
      'an unknown stream mode',
      '/runs/stream',
      { assistant_id: 'echo', stream_mode: ['values', 'sound'] },
      422,
      ['body', 'stream_mode'],
    ],
    [
      'an unknown multitask strategy',
      '/runs/wait',
      { assistant_id: 'echo', multitask_strategy: 'shout' },
      422,
      ['body', 'multitask_strategy'],
    ],
    ['a negative delay', '/runs', { assistant_id: 'echo', after_seconds: -1 }, 422, ['body', 'after_seconds']],
    ['a malformed id', '/threads/nothing/runs', { assistant_id: 'echo' }, 422, ['path', 'thread_id']],
    [
      'an invalid run in a batch',
      '/runs/batch',
      [{ assistant_id: 'echo' }, { assistant_id: 'echo', streamMode: 1 }],
      422,
      ['body', 1, 'streamMode'],
    ],
  ] as [string, string, object, number, unknown][])('%s is refused', async (_what, path, body, status, loc) => {
    const answer = await server.ask('POST', path, body);
    expect(answer.status).toBe(status);
    const { detail } = (await answer.json()) as { detail: { loc: unknown[] }[] };
    if (loc) expect(detail.map((each) => each.loc.slice(0, (loc as unknown[]).length))).toContainEqual(loc);
  });
});
