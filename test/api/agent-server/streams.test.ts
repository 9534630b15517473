import { randomUUID } from 'node:crypto';
import { Client } from '@langchain/langgraph-sdk';
import { describe, expect, it, onTestFinished } from 'vitest';
import { openTcpProxy } from '../../infra/tcp-proxy.ts';
import { shareDeployedAgents } from './start-agents-as-deployed.ts';
import { all, listNumbers, numbers, type Part } from './stream-parts.ts';

/** Streams of runs, through the stock client, and as raw bytes if the client hides details. */

const { server, client } = shareDeployedAgents();

const newThread = async () => (await client.threads.create()).thread_id;
const names = (parts: readonly Part[]) => parts.map(({ event }) => event);
const burst = (n: number, pauseMs?: number) => ({
  input: { n, ...(pauseMs && { pauseMs }) },
  streamMode: 'custom' as const,
});

describe('a stream', () => {
  it('has frames of event, data and id, and returns its location', async () => {
    const threadId = await newThread();
    const body = { assistant_id: 'burst', input: { n: 2 }, stream_mode: ['custom', 'values'] };
    const response = await server.ask('POST', `/threads/${threadId}/runs/stream`, body);
    expect(response.headers.get('content-type')).toMatch(/^text\/event-stream/);
    expect(response.headers.get('location')).toBeNull();
    const [, runId] = /^\/threads\/[^/]+\/runs\/([^/]+)$/.exec(response.headers.get('content-location')!)!;
    const text = (await response.text()).replaceAll(': heartbeat\n', '');
    const frames = text.split('\n\n').slice(0, -1);
    expect(frames[0]).toBe(
      `event: metadata\ndata: {"run_id":"${runId}","attempt":1,"graph_id":"burst","thread_id":"${threadId}"}\nid: 1-1`,
    );
    expect(frames.slice(1).map((frame) => frame.split('\n')[0])).toEqual([
      'event: values',
      'event: custom',
      'event: custom',
      'event: values',
    ]);
    expect(frames.map((frame) => frame.split('\n')[2])).toEqual([1, 2, 3, 4, 5].map((seq) => `id: 1-${seq}`));
  });

  it('is kept alive by comments while there are no events', async () => {
    const threadId = await newThread();
    const body = { assistant_id: 'burst', input: { n: 1, pauseMs: 900 }, stream_mode: 'custom' };
    const text = await (await server.ask('POST', `/threads/${threadId}/runs/stream`, body)).text();
    expect(text.match(/^: heartbeat$/gm)!.length).toBeGreaterThanOrEqual(4);
  });

  it('has the requested modes, and events of subgraphs with their namespaces', async () => {
    const threadId = await newThread();
    const stream = client.runs.stream(threadId, 'parent', {
      input: {},
      streamMode: ['updates', 'custom', 'values'],
      streamSubgraphs: true,
    });
    const seen = names(await all(stream));
    expect(seen[0]).toBe('metadata');
    expect(seen).toContain('updates');
    expect(seen.some((name) => /^updates\|child:[0-9a-f-]{36}$/.test(name))).toBe(true);
    expect(seen.some((name) => /^custom\|child:/.test(name))).toBe(true);
    const flat = names(
      await all(client.runs.stream(await newThread(), 'parent', { input: {}, streamMode: 'updates' })),
    );
    expect(flat).toEqual(['metadata', 'updates', 'updates']);
  });

  it('streams messages token by token', async () => {
    const input = { messages: [{ role: 'user', content: 'hello' }] };
    const parts = await all(client.runs.stream(await newThread(), 'chat', { input, streamMode: 'messages-tuple' }));
    const texts = parts
      .filter(({ event }) => event === 'messages')
      .map(({ data }) => (data as [{ content: string }])[0].content);
    expect(texts.length).toBeGreaterThan(3);
    expect(texts.join('')).toContain('Good day.');
  });

  it('reports an interrupt and a failure, and ends when the state is stored', async () => {
    const threadId = await newThread();
    const parts = await all(client.runs.stream(threadId, 'ask', { input: { question: 'Go?' }, streamMode: 'updates' }));
    expect(parts.at(-1)).toMatchObject({
      event: 'updates',
      data: { __interrupt__: [{ value: { question: 'Go?' } }] },
    });
    expect(await client.threads.get(threadId)).toMatchObject({ status: 'interrupted' });
    const failed = await all(
      client.runs.stream(threadId, 'misbehave', { input: { how: 'fail' }, streamMode: 'custom' }),
    );
    expect(failed.at(-1)).toMatchObject({
      event: 'error',
      data: { error: 'TypeError', message: 'the node failed on purpose' },
    });
    expect(await client.threads.get(threadId)).toMatchObject({ status: 'error' });
  });

  it('ends without an error when the run is cancelled', async () => {
    const threadId = await newThread();
    let runId = '';
    const stream = client.runs.stream(threadId, 'steps', {
      input: { steps: 1, pauseMs: 60_000 },
      streamMode: 'custom',
      onRunCreated: (run) => {
        runId = run.run_id;
      },
    });
    const parts: string[] = [];
    for await (const { event } of stream) {
      parts.push(event);
      await client.runs.cancel(threadId, runId);
    }
    expect(parts).toEqual(['metadata']);
    expect((await client.runs.get(threadId, runId)).status).toBe('interrupted');
  });
});

describe('joining', () => {
  it('sends each client all events from then on', async () => {
    const threadId = await newThread();
    const run = await client.runs.create(threadId, 'burst', { ...burst(30, 20), afterSeconds: 0.5 });
    const joins = [1, 2].map(() => all(client.runs.joinStream(threadId, run.run_id)));
    for (const parts of await Promise.all(joins)) {
      expect(names(parts)[0]).toBe('metadata');
      expect(numbers(parts)).toEqual(listNumbers(30));
    }
    expect(await all(client.runs.joinStream(threadId, run.run_id))).toEqual([]);
    await expect(all(client.runs.joinStream(threadId, randomUUID()))).rejects.toThrow('404');
  });

  it('filters by mode, using the first part of the event name', async () => {
    const threadId = await newThread();
    const made = { input: {}, streamMode: ['updates', 'custom'] as ('updates' | 'custom')[], streamSubgraphs: true };
    const run = await client.runs.create(threadId, 'parent', { ...made, streamResumable: true });
    const wanted = { streamMode: 'updates' as const, lastEventId: '-1' };
    const seen = names(await all(client.runs.joinStream(threadId, run.run_id, wanted)));
    expect(seen.some((name) => name.startsWith('updates|child:'))).toBe(true);
    expect(seen.filter((name) => name.startsWith('custom'))).toEqual([]);
    expect(seen[0]).toBe('metadata');
  });

  it('reports values that are too large as an error only to readers of the values', async () => {
    const threadId = await newThread();
    const streamMode = ['values', 'updates'] as ('values' | 'updates')[];
    const input = { how: 'large-state' };
    const { run_id: runId } = await client.runs.create(threadId, 'misbehave', {
      ...{ input, streamMode, streamResumable: true },
    });
    const read = async (mode?: 'values' | 'updates') => {
      const options = { lastEventId: '-1', ...(mode && { streamMode: mode }) };
      return names(await all(client.runs.joinStream(threadId, runId, options)));
    };
    expect((await read()).at(-1)).toBe('error');
    expect((await read('values')).at(-1)).toBe('error');
    const ofUpdates = await read('updates');
    expect(ofUpdates).toContain('warning');
    expect(ofUpdates).not.toContain('error');
  });

  it('cancels the run when the client disconnects, if requested', async () => {
    const threadId = await newThread();
    const run = await client.runs.create(threadId, 'steps', {
      ...{ input: { steps: 200, pauseMs: 100 }, streamMode: 'custom', config: { recursion_limit: 300 } },
    });
    const joinAndDisconnect = async (options: { cancelOnDisconnect?: boolean }) => {
      const disconnect = new AbortController();
      const joined = client.runs.joinStream(threadId, run.run_id, { ...options, signal: disconnect.signal });
      for await (const { event } of joined) if (event === 'custom') break;
      disconnect.abort();
    };
    const remainingReader = all(client.runs.joinStream(threadId, run.run_id));
    await joinAndDisconnect({});
    await joinAndDisconnect({ cancelOnDisconnect: false });
    expect((await client.runs.get(threadId, run.run_id)).status).toBe('running');
    await joinAndDisconnect({ cancelOnDisconnect: true });
    await expect.poll(async () => (await client.runs.get(threadId, run.run_id)).status).toBe('interrupted');
    expect(names(await remainingReader)).not.toContain('error');
    expect(await client.threads.get(threadId)).toMatchObject({ status: 'idle' });
  });
});

describe('a resumable stream', () => {
  it('resumes after the given event, during the run and after its end', async () => {
    const threadId = await newThread();
    const run = await client.runs.create(threadId, 'burst', { ...burst(40, 15), streamResumable: true });
    const allParts = await all(client.runs.joinStream(threadId, run.run_id, { lastEventId: '-1' }));
    expect(numbers(allParts)).toEqual(listNumbers(40));
    for (const from of [0, 17, 40]) {
      const lastEventId = allParts[from]!.id!;
      const rest = await all(client.runs.joinStream(threadId, run.run_id, { lastEventId }));
      expect(rest).toEqual(allParts.slice(from + 1));
    }
    expect(await all(client.runs.joinStream(threadId, run.run_id, { lastEventId: '-' }))).toEqual(allParts);
    const bad = await server.ask('GET', `/threads/${threadId}/runs/${run.run_id}/stream`, undefined, {
      'last-event-id': 'nonsense',
    });
    expect(bad.status).toBe(422);
  });

  it('is resumed by the client when the connection breaks, with each event once', async () => {
    const { hostname, port } = new URL(server.url);
    const proxy = await openTcpProxy(hostname, Number(port));
    onTestFinished(() => proxy.close());
    const apiUrl = `http://127.0.0.1:${proxy.port}`;
    const through = new Client({ apiUrl, apiKey: server.owner.adminKey, callerOptions: { maxRetries: 0 } });
    const threadId = await newThread();
    const parts: Part[] = [];
    let breaks = 0;
    for await (const part of through.runs.stream(threadId, 'burst', { ...burst(150, 10), streamResumable: true })) {
      parts.push(part as Part);
      if (parts.length === 20) {
        breaks += 1;
        proxy.breakAll();
      }
    }
    expect(breaks).toBe(1);
    expect(proxy.connections()).toBeGreaterThan(1);
    expect(numbers(parts)).toEqual(listNumbers(150));
  });

  it('ends with an error if the log did not accept all events, and the run keeps its status', async () => {
    const threadId = await newThread();
    const run = await client.runs.create(threadId, 'burst', { ...burst(3), afterSeconds: 600, streamResumable: true });
    // The same state as after the executing process has ended the run, but before it has published the end event.
    await server.database.execute(
      `UPDATE agents.runs SET status = 'success', attempt = 1, events_missing = true, end_published = false,
         started_at = clock_timestamp(), ended_at = clock_timestamp() WHERE run_id = $1`,
      [run.run_id],
    );
    const parts = await all(client.runs.joinStream(threadId, run.run_id, { lastEventId: '-1' }));
    expect(parts).toMatchObject([{ event: 'error', data: { error: 'STREAM_INCOMPLETE' } }]);
    expect((await client.runs.get(threadId, run.run_id)).status).toBe('success');
  });

  it('reports a run that was given up after its process died three times', {
    timeout: 60_000,
  }, async () => {
    const threadId = await newThread();
    const input = { how: 'kill' };
    const run = await client.runs.create(threadId, 'misbehave', { input, streamMode: 'custom', streamResumable: true });
    const join = () => all(client.runs.joinStream(threadId, run.run_id, { lastEventId: '-1' }));
    const parts = await join();
    const starts = parts
      .filter(({ event }) => event === 'metadata')
      .map(({ data }) => (data as { attempt: number }).attempt);
    expect(starts).toEqual([1, 2, 3]);
    expect(parts.at(-1)).toMatchObject({ event: 'error', data: { error: 'RunLost', message: expect.any(String) } });
    expect(await join()).toEqual(parts);
    expect(await client.runs.join(threadId, run.run_id)).toMatchObject({ __error__: { error: 'RunLost' } });
  });

  it('can be read from its start by a client that received nothing', async () => {
    const threadId = await newThread();
    const body = { assistant_id: 'burst', input: { n: 3 }, stream_mode: 'custom', stream_resumable: true };
    const response = await server.ask('POST', `/threads/${threadId}/runs/stream`, body);
    const location = response.headers.get('location')!;
    expect(location.startsWith(`${response.headers.get('content-location')}/stream`)).toBe(true);
    const [first, again] = [await response.text(), await (await server.ask('GET', location)).text()];
    expect(again.replaceAll(': heartbeat\n', '')).toBe(first.replaceAll(': heartbeat\n', ''));
  });
});

describe('the stream of a thread', () => {
  it('spans its runs, with all their events or only their starts and ends', async () => {
    const threadId = await newThread();
    const disconnect = new AbortController();
    const { signal } = disconnect;
    const collect = (streamMode: 'run_modes' | 'lifecycle') => {
      const parts: Part[] = [];
      const ended = (async () => {
        for await (const part of client.threads.joinStream(threadId, { streamMode, signal })) parts.push(part as Part);
      })().catch(() => undefined);
      return { parts, ended };
    };
    const [everything, lifecycle] = [collect('run_modes'), collect('lifecycle')];
    // Clients get events of the runs only after both are attached.
    const runIds: string[] = [];
    const ends = (parts: readonly Part[]) =>
      parts.filter(({ data }) => (data as { status?: string }).status === 'run_done').length;
    await expect
      .poll(
        async () => {
          if (runIds.length < 2 || ends(lifecycle.parts) === 0 || ends(everything.parts) === 0) {
            const run = await client.runs.create(threadId, 'burst', burst(2));
            runIds.push(run.run_id);
            await client.runs.join(threadId, run.run_id);
          }
          return Math.min(ends(everything.parts), ends(lifecycle.parts));
        },
        { timeout: 10_000 },
      )
      .toBeGreaterThanOrEqual(2);
    disconnect.abort();
    await Promise.all([everything.ended, lifecycle.ended]);
    expect(new Set(names(lifecycle.parts))).toEqual(new Set(['metadata']));
    expect(names(everything.parts).slice(-4)).toEqual(['metadata', 'custom', 'custom', 'metadata']);
    expect(lifecycle.parts.at(-1)!.data).toEqual({ status: 'run_done', run_id: runIds.at(-1) });
    const ids = everything.parts.map(({ id }) => Number(id));
    expect(ids).toEqual([...ids].sort((a, b) => a - b));
    expect((await server.ask('GET', `/threads/${randomUUID()}/stream`)).status).toBe(404);
  });

  it('reports new state, set by clients and by runs, to clients that request it', async () => {
    const { thread_id: threadId } = await client.threads.create({ graphId: 'steps' });
    const update = (log: string) => client.threads.updateState(threadId, { values: { log: [log] }, asNode: 'step' });
    const read = async (streamMode: 'state_update' | 'lifecycle', lastEventId: string, count: number) => {
      const disconnect = new AbortController();
      const parts: Part[] = [];
      const options = { streamMode, lastEventId, signal: disconnect.signal };
      for await (const part of client.threads.joinStream(threadId, options)) {
        parts.push(part as Part);
        if (parts.length === count) break;
      }
      disconnect.abort();
      return parts;
    };
    await update('by hand');
    await client.runs.wait(threadId, 'steps', { input: { steps: 1, text: 'run' }, streamResumable: true });
    const { checkpoint } = (await update('again')) as unknown as { checkpoint: { checkpoint_id: string } };

    const stateUpdates = await read('state_update', '-', 3);
    expect(names(stateUpdates)).toEqual(Array(3).fill('state_update'));
    const states = stateUpdates.map(({ data }) => data as { thread_id: string; state: { values: { log: string[] } } });
    expect(states[0]).toMatchObject({ thread_id: threadId, state: { values: { log: ['by hand'] } } });
    // The end of a run is sent with the state at that time.
    const last = { log: ['by hand', 'run 1', 'again'] };
    expect(states[1]).toMatchObject({ state: { values: last } });
    expect(states[2]).toMatchObject({ state: { values: last, next: [], checkpoint } });
    expect(await read('state_update', stateUpdates[1]!.id!, 1)).toEqual(stateUpdates.slice(2));
    expect(names(await read('lifecycle', '-', 2))).toEqual(['metadata', 'metadata']);
  });
});
