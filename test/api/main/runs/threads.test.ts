import { randomUUID } from 'node:crypto';
import type { Client } from 'langsmith';
import { Client as NewClient } from 'langsmith-0-12';
import { beforeAll, describe, expect, it } from 'vitest';
import type { RunEvent } from '../../../../pipelines/ingest/run-event/run-event.ts';
import { forSuite } from '../../../for-suite.ts';
import { insertEvents, json, noonMicros, runEvent } from '../../../pipelines/runs/run-events.ts';
import { openClient } from '../../open-client.ts';
import { startRunsApi } from './runs.fixture.ts';

const runs = forSuite(() => startRunsApi());
let client: Client;
let projectId: string;
/** Root runs of two threads, and one without a thread. Turn n starts n minutes after noon. */
const roots: Record<string, RunEvent> = {};
const calls: Record<string, RunEvent> = {};
const minuteMicros = 60_000_000;
const timeAt = (minute: number) => new Date((noonMicros + minute * minuteMicros) / 1_000).toISOString();
const min_start_time = timeAt(0);
/** Clients choose the names of details; this one is also a property of every object. */
const detail = 'constructor';

function addTurn(minute: number, thread: object, seconds: number | undefined, more: object = {}): RunEvent[] {
  const tenantId = runs.ours.workspaceIds[0];
  const startTimeMicros = noonMicros + minute * minuteMicros;
  const endedAtMicros = seconds === undefined ? {} : { endedAtMicros: startTimeMicros + seconds * 1e6 };
  const root = runEvent({
    tenantId,
    projectId,
    startTimeMicros,
    traceTimeMicros: startTimeMicros,
    values: {
      name: `turn ${minute}`,
      runType: 'chain',
      inputs: json({ minute }),
      outputs: json({ answer: minute }),
      extra: json({ metadata: thread }),
      ...endedAtMicros,
      ...more,
    },
  });
  const call = runEvent({
    tenantId,
    projectId,
    traceId: root.runId,
    startTimeMicros: startTimeMicros + 1_000_000,
    traceTimeMicros: startTimeMicros,
    values: {
      name: 'call',
      runType: 'llm',
      parentRunId: root.runId,
      promptTokens: minute,
      completionTokens: 1,
      totalTokens: minute + 1,
      totalCost: '0.25',
      usageDetails: json({ prompt_token_details: { [detail]: 1 } }),
      firstTokenTimeMicros: startTimeMicros + 2_000_000,
    },
  });
  roots[minute] = root;
  calls[minute] = call;
  return [root, call];
}

beforeAll(async () => {
  projectId = randomUUID();
  const [tenantId] = runs.ours.workspaceIds;
  await runs.api.database.execute('INSERT INTO projects (id, workspace_id, name) VALUES ($1, $2, $3)', [
    projectId,
    tenantId,
    'threads',
  ]);
  await insertEvents(runs.api.services.clickhouse, [
    ...addTurn(1, { thread_id: 'a' }, 1),
    ...addTurn(2, { session_id: 'b' }, 10),
    ...addTurn(3, { conversation_id: 'a' }, 3, { error: Buffer.from('"boom"'), tags: json(['bad']) }),
    ...addTurn(4, {}, 1),
    ...addTurn(5, { thread_id: 'a' }, undefined),
  ]);
  for (const [run_id, score] of [
    [roots[1]?.runId, 1],
    [roots[3]?.runId, 0],
  ]) {
    const sent = await runs.ask({ url: '/feedback', body: { run_id, key: 'user_score', score } });
    expect(sent.status).toBe(200);
  }
  await runs.api.settled();
  client = await openClient(runs.api, runs.ours.workspaceKeys[0]);
});

describe('threads', () => {
  it('are queried by the stock SDK, the one with the newest trace first', async () => {
    const threads = [];
    for await (const thread of client.threads.query({ project_id: projectId, min_start_time, page_size: 1 }))
      threads.push(thread);
    expect(threads).toEqual([
      {
        thread_id: 'a',
        count: 3,
        first_trace_id: roots[1]?.runId,
        last_trace_id: roots[5]?.runId,
        trace_id: roots[5]?.runId,
        first_inputs: '{"minute":1}',
        last_outputs: '{"answer":5}',
        last_error: 'boom',
        min_start_time: '2026-03-05T12:01:00.000000Z',
        max_start_time: '2026-03-05T12:05:00.000000Z',
        start_time: '2026-03-05T12:05:00.000000Z',
        latency_p50: 2,
        latency_p99: 2.98,
        total_tokens: 12,
        total_cost: 0.75,
        total_token_details: { [detail]: 3 },
        total_cost_details: {},
        num_errored_turns: 1,
        feedback_stats: { user_score: expect.objectContaining({ n: 2, avg: 0.5, min: 0, max: 1 }) },
      },
      expect.objectContaining({ thread_id: 'b', count: 1, total_tokens: 3, last_error: null, feedback_stats: null }),
    ]);
  });

  it('that a filter selects are summarised as a whole', async () => {
    const parameters = { project_id: projectId, min_start_time };
    const [all] = (await client.threads.query(parameters)).items;
    expect((await client.threads.query({ ...parameters, filter: 'has(tags, "bad")' })).items).toEqual([all]);
  });

  const query = async (body: object) => {
    const answer = await runs.ask({
      url: '/v2/threads/query',
      body: { project_id: projectId, min_start_time, ...body },
    });
    return { ...answer, items: answer.body.items as { thread_id: string; count: number }[] };
  };
  it.each<[string, object, [string, number][]]>([
    [
      'all',
      {},
      [
        ['a', 3],
        ['b', 1],
      ],
    ],
    [
      'a time range, exclusive at its end',
      { min_start_time: timeAt(2), max_start_time: timeAt(5) },
      [
        ['a', 1],
        ['b', 1],
      ],
    ],
    ['the default time range', { min_start_time: null }, []],
    ['a filter', { filter: 'has(tags, "bad")' }, [['a', 3]]],
    ['a filter on times', { filter: `lt(start_time, "${timeAt(2)}")` }, [['a', 3]]],
    ['a trace filter', { trace_filter: 'neq(error, null)' }, [['a', 3]]],
    ['a filter and a time range', { filter: 'has(tags, "bad")', max_start_time: timeAt(4) }, [['a', 2]]],
    ['a filter that matches outside of the time range', { filter: 'has(tags, "bad")', min_start_time: timeAt(4) }, []],
    ['filters that no trace satisfies together', { filter: 'has(tags, "bad")', trace_filter: 'eq(error, null)' }, []],
    ['a tree filter', { tree_filter: 'and(eq(name, "call"), eq(prompt_tokens, 2))' }, [['b', 1]]],
    ['a filter on children', { filter: 'eq(name, "call")' }, []],
  ])('with %s', async (_name, body, expected) => {
    expect((await query(body)).items.map(({ thread_id, count }) => [thread_id, count])).toEqual(expected);
  });

  it.each<[string, () => object, number]>([
    ['an unknown project', () => ({ project_id: randomUUID() }), 404],
    ['no project', () => ({ project_id: null }), 422],
    ['an invalid filter', () => ({ filter: 'eq(' }), 400],
    ['a thread filter on a field of runs', () => ({ thread_filter: 'eq(status, "error")' }), 400],
    ['an invalid cursor', () => ({ cursor: 'bnVsbA' }), 400],
    ['a page that is too large', () => ({ page_size: 101 }), 422],
  ])('refuse %s', async (_name, body, status) => {
    expect((await query(body())).body).toMatchObject({ status });
  });

  it('list their traces, oldest first', async () => {
    const traces = [];
    const parameters = { project_id: projectId, page_size: 2, selects: ['NAME', 'LATENCY', 'TOTAL_TOKENS'] as const };
    for await (const trace of client.threads.listTraces('a', { ...parameters, selects: [...parameters.selects] }))
      traces.push(trace);
    expect(traces).toEqual([
      { trace_id: roots[1]?.runId, name: 'turn 1', latency: 1, total_tokens: 2 },
      { trace_id: roots[3]?.runId, name: 'turn 3', latency: 3, total_tokens: 4 },
      { trace_id: roots[5]?.runId, name: 'turn 5', latency: null, total_tokens: 6 },
    ]);
    const url = `/v2/threads/a/traces?project_id=${projectId}&filter=${encodeURIComponent('has(tags, "bad")')}`;
    expect((await runs.ask({ url })).body.items).toEqual([{ trace_id: roots[3]?.runId }]);
    const hostile = `/v2/threads/${encodeURIComponent("' OR 1=1")}/traces?project_id=${projectId}`;
    expect((await runs.ask({ url: hostile })).body).toEqual({ items: [], next_cursor: null, has_more: false });
  });

  it('number their traces before the filter and the pages', async () => {
    const newClient = await openClient(runs.api, runs.ours.workspaceKeys[0], {}, NewClient);
    const list = async (threadId: string, filter: { filter?: string } = {}) => {
      const traces = [];
      const parameters = { project_id: projectId, page_size: 2, selects: ['NAME' as const, 'TURN_NUMBER' as const] };
      for await (const trace of newClient.threads.listTraces(threadId, { ...parameters, ...filter }))
        traces.push([trace.name, trace.turn_number]);
      return traces;
    };
    expect(await list('a')).toEqual([
      ['turn 1', 1],
      ['turn 3', 2],
      ['turn 5', 3],
    ]);
    expect(await list('a', { filter: 'has(tags, "bad")' })).toEqual([['turn 3', 2]]);
    expect(await list('b')).toEqual([['turn 2', 1]]);
  });

  it('have statistics', async () => {
    const stats = await client.threads.stats('a', {
      session_id: projectId,
      selects: [
        'TURNS',
        'LAST_END_TIME',
        'LATENCY_P50',
        'PROMPT_TOKENS',
        'TOTAL_COST',
        'PROMPT_TOKEN_DETAILS',
        'FEEDBACK_STATS',
      ],
    });
    expect(stats).toEqual({
      turns: 3,
      last_end_time: '2026-03-05T12:03:03.000000Z',
      latency_p50_seconds: 2,
      prompt_tokens: 9,
      total_cost: 0.75,
      prompt_token_details: { raw: { [detail]: 3 } },
      feedback_stats: { user_score: expect.objectContaining({ n: 2, avg: 0.5 }) },
    });
    const url = `/v2/threads/none/stats?session_id=${projectId}&selects=TURNS&selects=LATENCY_P99&selects=LAST_END_TIME`;
    expect((await runs.ask({ url })).body).toEqual({ turns: 0, latency_p99_seconds: null, last_end_time: null });
    expect((await runs.ask({ url: `/v2/threads/a/stats?session_id=${projectId}` })).status).toBe(422);
  });
});

describe('groups of runs by conversation', () => {
  it('are listed by the stock SDK', async () => {
    const threads = [];
    for await (const thread of client.listGroupRuns({ projectId, groupBy: 'conversation', limit: 1 }))
      threads.push(thread);
    expect(threads).toMatchObject([
      { thread_id: 'a', count: 3, filter: 'eq(thread_id, "a")', total_tokens: 12, latency_p50: 2, last_error: 'boom' },
      { thread_id: 'b', count: 1, total_tokens: 3, last_error: null },
    ]);
    const threadRunIds = [];
    for await (const { id } of client.listRuns({ projectId, filter: threads[0]?.filter ?? '' })) threadRunIds.push(id);
    expect(threadRunIds).toHaveLength(3);
  });

  const group = async (path: string, body: object = {}) =>
    (await runs.ask({ url: `/runs/group${path}`, body: { session_id: projectId, group_by: 'conversation', ...body } }))
      .body;
  const ids = async (body: object) => {
    const { groups, total } = await group('', body);
    return [(groups as { thread_id: string }[]).map(({ thread_id }) => thread_id), total];
  };
  it('have pages, times and filters', async () => {
    expect(await ids({ offset: 1 })).toEqual([['b'], 2]);
    expect(await ids({ offset: 5 })).toEqual([[], 2]);
    expect(await ids({ start_time: timeAt(2), end_time: timeAt(3) })).toEqual([['b'], 1]);
    expect(await ids({ filter: 'has(tags, "bad")' })).toEqual([['a'], 1]);
  });

  it('have statistics', async () => {
    const expected = {
      group_count: 2,
      run_count: 4,
      total_tokens: 15,
      total_cost: 1,
      error_rate: 0.25,
      median_tokens: 4,
    };
    expect(await group('/stats')).toMatchObject({ ...expected, prompt_token_details: { [detail]: 4 } });
    expect(await group('/stats', { start_time: timeAt(6) })).toMatchObject({ group_count: 0, run_count: 0 });
    const body = { project_id: projectId, min_start_time };
    const select = ['THREAD_COUNT', 'TRACE_COUNT', 'LATENCY_P50', 'PROMPT_TOKEN_DETAILS', 'THREAD_FEEDBACK_STATS'];
    const stats = await runs.ask({ url: '/v2/threads/stats', body: { ...body, select } });
    expect(stats.body).toEqual({
      thread_count: 2,
      trace_count: 4,
      latency_p50_seconds: 3,
      prompt_token_details: { [detail]: 4 },
      thread_feedback_stats: { user_score: expect.objectContaining({ n: 2, avg: 0.5 }) },
    });
    const newClient = await openClient(runs.api, runs.ours.workspaceKeys[0], {}, NewClient);
    const filtered = await newClient.threads.aggregateStats({
      ...body,
      select: ['THREAD_COUNT', 'TRACE_COUNT', 'TOTAL_TOKENS', 'PROMPT_TOKEN_DETAILS', 'THREAD_FEEDBACK_STATS'],
      trace_filter: 'eq(name, "turn 5")',
    });
    expect(filtered).toEqual({
      thread_count: 1,
      trace_count: 3,
      total_tokens: 12,
      prompt_token_details: { [detail]: 3 },
      thread_feedback_stats: { user_score: expect.objectContaining({ n: 2, avg: 0.5 }) },
    });
    const counted = await runs.ask({
      url: '/v2/threads/stats',
      body: { project_id: projectId, select: ['THREAD_COUNT'] },
    });
    expect(counted.body).toEqual({ thread_count: 0 });
  });

  it.each<[string, object, number]>([
    ['another grouping', { group_by: 'name' }, 422],
    ['an unknown project', { session_id: randomUUID() }, 404],
    ['an invalid filter', { filter: 'eq(' }, 400],
    ['a limit above the maximum', { limit: 101 }, 422],
  ])('refuse %s', async (_name, more, status) => {
    for (const url of ['/runs/group', '/runs/group/stats']) {
      const body = { session_id: projectId, group_by: 'conversation', ...more };
      expect((await runs.ask({ url, body })).status).toBe(status);
    }
  });

  it('need the permission to read runs', async () => {
    const body = { session_id: projectId, group_by: 'conversation' };
    expect((await runs.ask({ url: '/runs/group', body, key: runs.keyWithoutRunsRead })).status).toBe(403);
    expect((await runs.ask({ url: '/v2/threads/stats', body: {}, key: runs.keyWithoutRunsRead })).status).toBe(403);
  });
});

describe('traces', () => {
  it('are queried by the stock SDK', async () => {
    const traces = [];
    for await (const trace of client.traces.query({
      project_id: projectId,
      min_start_time,
      page_size: 2,
      selects: ['NAME', 'TOTAL_TOKENS', 'FIRST_TOKEN_TIME'],
    }))
      traces.push(trace);
    expect(traces).toHaveLength(5);
    expect(traces[0]).toEqual({
      root_run: { name: 'turn 5' },
      trace_aggregates: { total_tokens: 6, first_token_time: '2026-03-05T12:05:02.000000Z' },
    });
  });

  const query = async (body: object) => {
    const answer = await runs.ask({
      url: '/v2/traces/query',
      body: { project_id: projectId, min_start_time, ...body },
    });
    return (answer.body.items as { root_run: { id: string } }[] | undefined)?.map(({ root_run }) => root_run.id);
  };
  const ids = (...minutes: number[]) => minutes.map((minute) => roots[minute]?.runId);
  it.each<[string, () => object, number[]]>([
    ['ids', () => ({ trace_ids: [...ids(1, 2), randomUUID()] }), [2, 1]],
    ['no ids', () => ({ trace_ids: [] }), []],
    ['a trace filter', () => ({ trace_filter: 'neq(error, null)' }), [3]],
    ['a tree filter', () => ({ tree_filter: 'and(eq(name, "call"), gt(prompt_tokens, 3))' }), [5, 4]],
    ['a time range, exclusive at its end', () => ({ min_start_time: timeAt(2), max_start_time: timeAt(4) }), [3, 2]],
    ['the default time range', () => ({ min_start_time: null }), []],
  ])('with %s', async (_name, body, expected) => {
    expect(await query(body())).toEqual(ids(...expected));
  });

  it('list their runs', async () => {
    const traceId = roots[3]?.runId ?? '';
    const { items } = await client.traces.listRuns(traceId, { project_id: projectId, selects: ['ID', 'NAME'] });
    expect(items).toEqual([
      { id: traceId, name: 'turn 3' },
      { id: calls[3]?.runId, name: 'call' },
    ]);
    const url = `/v2/traces/${traceId}/runs?project_id=${projectId}`;
    const list = async (more: string) => (await runs.ask({ url: url + more })).body.items;
    expect(await list(`&filter=${encodeURIComponent('eq(run_type, "llm")')}`)).toEqual([{ id: calls[3]?.runId }]);
    expect(await list(`&max_start_time=${timeAt(3)}`)).toEqual([{ id: traceId }]);
    expect((await runs.ask({ url: `/v2/traces/${traceId}/runs?project_id=${randomUUID()}` })).status).toBe(404);
    expect((await runs.ask({ url: `/v2/traces/${randomUUID()}/runs?project_id=${projectId}` })).body).toEqual({
      items: [],
    });
  });

  it('of more runs than are read at once are listed whole, unless they are too large', async () => {
    const root = runEvent({ tenantId: runs.ours.workspaceIds[0], projectId, values: { name: 'large' } });
    const children = Array.from({ length: 2_100 }, (_, index) =>
      runEvent({
        tenantId: runs.ours.workspaceIds[0],
        projectId,
        traceId: root.runId,
        traceTimeMicros: root.traceTimeMicros,
        startTimeMicros: root.startTimeMicros + index + 1,
        values: { name: `${index}`, parentRunId: root.runId, inputs: json({ text: 'x'.repeat(100) }) },
      }),
    );
    await insertEvents(runs.api.services.clickhouse, [root, ...children]);
    const { items } = await client.traces.listRuns(root.runId, {
      project_id: projectId,
      selects: ['NAME', 'TOTAL_TOKENS'],
    });
    expect(items?.map(({ name }) => name)).toEqual(['large', ...children.map(({ values }) => values.name)]);
  });
});
