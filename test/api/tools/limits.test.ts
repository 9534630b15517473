import { describe, expect, it, vi } from 'vitest';
import { CallSlots, callTool } from '../../../api/tools/call-tool.ts';
import { openMainApi } from '../../../api/tools/main-api.ts';
import { fetchRuns } from '../../../api/tools/runs.ts';
import { defineTool, type Tool, type ToolContext } from '../../../api/tools/tool.ts';
import { forSuite } from '../../for-suite.ts';
import { deferred } from '../../infra/deferred.ts';
import { logger } from '../../silent-logger.ts';
import { rootRun, sendRuns } from './send-runs.ts';
import { startToolServer } from './start-tools.ts';

const limits = { timeoutMs: 10_000, maxAnswerBytes: 1_000, callsPerKey: 2, waitingPerKey: 3 };

/** A tool that waits until the test ends its call. */
function waitingTool() {
  const started: (() => void)[] = [];
  const tool = defineTool({
    ...{ name: 'wait', title: 'Wait', description: 'Waits.', parameters: {}, output: {} },
    run: async () => {
      const { promise, resolve } = deferred();
      started.push(() => resolve());
      await promise;
      return { done: true };
    },
  });
  return { tool, started };
}

function call(tool: Tool, slots: CallSlots, keyId: string, { signal = new AbortController().signal, ...more } = {}) {
  const openContext = () => ({}) as ToolContext;
  return callTool({ tool, values: {}, keyId, signal, openContext, logger }, { ...limits, ...more }, slots);
}

describe('calls at once', () => {
  it('are limited for each key, wait in order, and are refused beyond', async () => {
    const { tool, started } = waitingTool();
    const slots = new CallSlots(limits);
    const ends: number[] = [];
    const flood = Array.from({ length: 6 }, (_, number) =>
      call(tool, slots, 'flood').then((result) => {
        ends.push(number);
        return result;
      }),
    );
    const refused = await flood[5];
    expect(refused).toMatchObject({
      isError: true,
      structuredContent: { error: expect.stringMatching(/^Too many calls at once/) },
    });
    await vi.waitFor(() => expect(started).toHaveLength(2));
    // Another key is not delayed.
    const quick = call(tool, slots, 'other');
    await vi.waitFor(() => expect(started).toHaveLength(3));
    started[2]?.();
    expect(await quick).toMatchObject({ structuredContent: { done: true } });
    for (const next of [0, 1, 3, 4, 5]) {
      await vi.waitFor(() => expect(started.length).toBeGreaterThan(next));
      started[next]?.();
    }
    expect((await Promise.all(flood)).filter(({ isError }) => isError)).toHaveLength(1);
    expect(ends).toEqual([5, 0, 1, 2, 3, 4]);
    // All slots are free again.
    const again = call(tool, slots, 'flood');
    await vi.waitFor(() => expect(started).toHaveLength(7));
    started[6]?.();
    expect(await again).toMatchObject({ structuredContent: { done: true } });
  });

  it('that are cancelled while they wait leave the queue', async () => {
    const { tool, started } = waitingTool();
    const slots = new CallSlots({ ...limits, callsPerKey: 1 });
    const first = call(tool, slots, 'key');
    const abort = new AbortController();
    const second = call(tool, slots, 'key', { signal: abort.signal });
    const third = call(tool, slots, 'key');
    abort.abort();
    expect(await second).toMatchObject({ isError: true, structuredContent: { error: 'The call was cancelled.' } });
    started[0]?.();
    await first;
    await vi.waitFor(() => expect(started).toHaveLength(2));
    started[1]?.();
    expect(await third).toMatchObject({ structuredContent: { done: true } });
  });
});

it('a call that takes too long fails, and frees its slot', async () => {
  const { tool, started } = waitingTool();
  const slots = new CallSlots({ ...limits, callsPerKey: 1 });
  const slow = await call(tool, slots, 'key', { timeoutMs: 50 } as object);
  expect(slow).toMatchObject({
    isError: true,
    structuredContent: { error: expect.stringMatching(/did not finish within 50 ms\. Ask for less/) },
  });
  const next = call(tool, slots, 'key');
  await vi.waitFor(() => expect(started).toHaveLength(2));
  started[1]?.();
  expect(await next).toMatchObject({ structuredContent: { done: true } });
});

describe('a list of projects', () => {
  it.each<[string, string[], number, RegExp]>([
    ['of too many names', Array.from({ length: 5_000 }, (_, n) => `p${n}`), 0, /at most 100 names/],
    ['with a name that does not exist', ['none', ...Array.from({ length: 99 }, (_, n) => `p${n}`)], 5, /not found/],
    ['that repeats a name', Array.from({ length: 5_000 }, () => 'none'), 1, /not found/],
  ])('%s sends few requests, and none after the result', async (_name, project_name, expected, error) => {
    let sent = 0;
    const { promise: ended, resolve: end } = deferred();
    const send = async ({ url }: { url: string }) => {
      sent += 1;
      if (url.includes('name=none')) return { status: 200, text: '[]' };
      await ended;
      return { status: 200, text: '[{"id":"1"}]' };
    };
    const credentials = { key: 'k', workspace: undefined };
    const openContext = (signal: AbortSignal) => {
      const endpoint = 'http://main.example';
      return { api: openMainApi({ send, credentials, endpoint }, { maxReadBytes: 1, signal }), endpoint };
    };
    const values = { project_name, limit: 1 };
    const { signal } = new AbortController();
    const request = { tool: fetchRuns, values, keyId: 'key', signal, openContext, logger };
    const result = await callTool(request, { ...limits, timeoutMs: 60_000 }, new CallSlots(limits));
    expect(result).toMatchObject({ isError: true, structuredContent: { error: expect.stringMatching(error) } });
    end();
    await new Promise(setImmediate);
    expect(sent).toBe(expected);
  });
});

it('a call that has ended stops the work that it did not wait for', async () => {
  let signal: AbortSignal | undefined;
  const tool = defineTool({
    ...{ name: 'quick', title: 'Quick', description: 'Ends.', parameters: {}, output: {} },
    run: async () => ({ done: signal?.aborted }),
  });
  const openContext = (given: AbortSignal) => {
    signal = given;
    return {} as ToolContext;
  };
  const request = { tool, values: {}, keyId: 'key', signal: new AbortController().signal, openContext };
  const result = await callTool({ ...request, logger }, limits, new CallSlots(limits));
  expect(result).toMatchObject({ structuredContent: { done: false } });
  expect(signal?.aborted).toBe(true);
});

it('a failure that is nobody’s fault says nothing of the server', async () => {
  const broken = defineTool({
    ...{ name: 'broken', title: 'Broken', description: 'Fails.', parameters: {}, output: {} },
    run: async () => (undefined as unknown as { secret: { text: string } }).secret,
  });
  const result = await call(broken, new CallSlots(limits), 'key');
  expect(result.structuredContent).toEqual({
    error:
      'The tool broken failed with an internal error. The log of the server has the reason, in the line "tool failed".',
  });
});

it('a call reads no more pages than its budget allows, and says so', async () => {
  const server = await startToolServer({ config: { maxPageBytes: 50_000, toolsMaxReadBytes: 100_000 } });
  const runs = Array.from({ length: 30 }, (_, number) =>
    rootRun('budget', {
      inputs: { messages: [{ role: 'user', content: `${number} ${'x'.repeat(10_000)}` }] },
      extra: { metadata: { thread_id: 'long' } },
    }),
  );
  await sendRuns(server, runs);
  const page = { project_name: 'budget', max_chars_per_page: 30_000, preview_chars: 40 };
  const fetched = await server.call('fetch_runs', { ...page, limit: 30 });
  expect(fetched.note).toMatch(/^The runs are large: the pages have only the first 1\d\. .* start_time to filter\.$/);
  expect(fetched.runs[0].id).toBe(runs[29]?.id);
  expect((await server.call('fetch_runs', { ...page, limit: 5 })).note).toMatch(
    /^More runs match: the pages have only the first 5\./,
  );
  const { note, result } = await server.call('get_thread_history', { ...page, thread_id: 'long', page_number: 1 });
  expect(note).toMatch(/^The history is limited to the newest 1\d runs of the thread\.$/);
  expect(result.at(-1).content).toMatch(/^29 x/);
  await server.close();
});

it('a response of the main API that is too large is refused before it fills the memory', async () => {
  const server = await startToolServer({ config: { maxPageBytes: 50_000 } });
  const { id: dataset_id } = await server.ask('POST', '/datasets', { name: 'large' });
  const examples = Array.from({ length: 3 }, () => ({ dataset_id, inputs: { text: 'x'.repeat(60_000) } }));
  await server.ask('POST', '/examples/bulk', examples as never);
  const list = (limit: number) => server.call('list_examples', { dataset_id, limit });
  expect((await list(3)).error).toMatch(/^The result is larger than 100000 bytes\. Ask for less: a smaller limit/);
  expect((await list(1)).examples).toHaveLength(1);
  await server.close();
});

describe('over HTTP', () => {
  const server = forSuite(() =>
    startToolServer({
      config: { toolsMaxAnswerBytes: 20_000, toolsCallsPerKey: 2, toolsWaitingPerKey: 1_000 },
    }),
  );

  it('a result that is too large is an error', async () => {
    // Text and structured content together are larger than the limit.
    const run = rootRun('large', { inputs: { text: 'x'.repeat(12_000) } });
    await sendRuns(server, [run]);
    const { error } = await server.call('get_run', { run_id: run.id, preview_chars: 0 });
    const message = 'The result is larger than 20000 bytes.';
    expect(error).toBe(`${message} Ask for less: a smaller limit, or fewer fields.`);
    const [key] = server.owner.workspaceKeys;
    await server.api.ask(key, 'POST', '/repos', { repo_handle: 'large', is_public: false });
    const manifest = { template: 'x'.repeat(30_000) };
    expect((await server.api.ask(key, 'POST', '/commits/-/large', { manifest })).status).toBe(201);
    const client = await server.connect();
    await expect(client.readResource({ uri: 'runlake://prompts/large' })).rejects.toThrow(message);
    await expect(client.getPrompt({ name: 'large' })).rejects.toThrow(message);
    expect((await server.call('get_run', { run_id: run.id })).run.id).toBe(run.id);
  });

  it('a flood of one key does not slow the calls of another', { timeout: 60_000 }, async () => {
    const { owner } = server;
    const [busy, quiet] = await Promise.all(owner.workspaceKeys.map((key) => server.connect(key)));
    const measure = async () => {
      const times: number[] = [];
      for (let count = 0; count < 15; count += 1) {
        const startedAt = performance.now();
        await quiet?.callTool({ name: 'list_projects', arguments: {} });
        times.push(performance.now() - startedAt);
      }
      return times.sort((a, b) => a - b)[7] as number;
    };
    await measure();
    const alone = await measure();
    const flood = Promise.all(
      Array.from({ length: 400 }, () => busy?.callTool({ name: 'list_projects', arguments: {} })),
    );
    const besides = await measure();
    await flood;
    // The quiet key waits for at most the two running calls of the other, not for its 400.
    expect(besides).toBeLessThan(Math.max(alone * 8, 250));
  });
});
