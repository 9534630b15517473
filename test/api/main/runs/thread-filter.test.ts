import { randomUUID } from 'node:crypto';
import { Client as NewClient } from 'langsmith-0-12';
import { beforeAll, describe, expect, it } from 'vitest';
import { forSuite } from '../../../for-suite.ts';
import { insertEvents, json, noonMicros, runEvent } from '../../../pipelines/runs/run-events.ts';
import { openClient } from '../../open-client.ts';
import { startRunsApi } from './runs.fixture.ts';

const runs = forSuite(() => startRunsApi());
let projectId: string;
const minuteMicros = 60_000_000;
const timeAt = (minute: number) => new Date((noonMicros + minute * minuteMicros) / 1_000).toISOString();
const min_start_time = timeAt(0);

/** Creates a trace with a model call. Turn n starts n minutes after noon. */
function addTurn(minute: number, thread_id: string, seconds: number | undefined, more: object = {}) {
  const startTimeMicros = noonMicros + minute * minuteMicros;
  const place = { tenantId: runs.ours.workspaceIds[0], projectId, traceTimeMicros: startTimeMicros };
  const endedAtMicros = seconds === undefined ? {} : { endedAtMicros: startTimeMicros + seconds * 1e6 };
  const values = { name: `turn ${minute}`, extra: json({ metadata: { thread_id } }), ...endedAtMicros, ...more };
  const root = runEvent({ ...place, startTimeMicros, values });
  const usage = thread_id === 'free' ? {} : { totalTokens: minute + 1, totalCost: '0.25' };
  const call = runEvent({
    ...{ ...place, traceId: root.runId, startTimeMicros: startTimeMicros + 1_000_000 },
    values: { name: 'call', runType: 'llm', parentRunId: root.runId, ...usage },
  });
  return [root, call];
}

beforeAll(async () => {
  projectId = randomUUID();
  await runs.api.database.execute('INSERT INTO projects (id, workspace_id, name) VALUES ($1, $2, $3)', [
    projectId,
    runs.ours.workspaceIds[0],
    'filtered threads',
  ]);
  await insertEvents(runs.api.services.clickhouse, [
    ...addTurn(1, 'a', 1),
    ...addTurn(2, 'b', 10),
    ...addTurn(3, 'a', 3, { error: Buffer.from('"boom"'), tags: json(['bad']) }),
    ...addTurn(4, 'free', undefined),
    ...addTurn(5, 'a', undefined),
  ]);
  await runs.api.settled();
});

describe('a thread filter', () => {
  it.each<[string, string, object?]>([
    ['and(gt(turn_count, 1), eq(num_errored_turns, 1))', 'a 3'],
    ['or(in(thread_id, ["b"]), like(thread_id, "fr%"))', 'free 1,b 1'],
    ['lte(thread_duration, "10s")', 'b 1'],
    ['eq(thread_duration, 123)', 'a 3'],
    ['eq(trace_latency_p99, null)', 'free 1'],
    ['and(eq(trace_latency_p50, 2), eq(trace_latency_p99, 2.98))', 'a 3'],
    ['and(eq(total_tokens, 3), neq(total_cost, null))', 'b 1'],
    ['eq(total_tokens, 0)', 'free 1'],
    ['eq(total_cost, null)', 'free 1'],
    ['not(lt(total_cost, 0.75))', 'a 3,free 1'],
    ['gte(total_cost, 0.75)', 'a 3'],
    ['eq(turn_count, 1)', 'b 1,a 1', { max_start_time: timeAt(3) }],
    ['eq(turn_count, 1)', 'b 1', { max_start_time: timeAt(3), filter: `gt(start_time, "${timeAt(1.5)}")` }],
    ['gt(turn_count, 2)', 'a 3', { filter: 'has(tags, "bad")', tree_filter: 'eq(name, "call")' }],
    ['lt(turn_count, 2)', '', { filter: 'has(tags, "bad")' }],
    ['gt(turn_count, 9)', ''],
  ])('%s selects "%s"', async (thread_filter, expected, more = {}) => {
    const body = { project_id: projectId, min_start_time, thread_filter, ...more };
    const { items } = (await runs.ask({ url: '/v2/threads/query', body })).body;
    const threads = items as { thread_id: string; count: number }[];
    expect(threads.map(({ thread_id, count }) => `${thread_id} ${count}`).join()).toBe(expected);
    const stats = await runs.ask({
      url: '/v2/threads/stats',
      body: { ...body, select: ['THREAD_COUNT', 'TRACE_COUNT', 'TOTAL_TOKENS'] },
    });
    expect(stats.body).toMatchObject({
      thread_count: threads.length,
      trace_count: threads.reduce((sum, { count }) => sum + count, 0),
    });
  });

  it('is sent by the stock SDK, and applies to all pages', async () => {
    const client = await openClient(runs.api, runs.ours.workspaceKeys[0], {}, NewClient);
    const found = [];
    const query = { project_id: projectId, min_start_time, page_size: 1, thread_filter: 'gt(total_tokens, 2)' };
    for await (const { thread_id, total_tokens } of client.threads.query(query)) found.push([thread_id, total_tokens]);
    expect(found).toEqual([
      ['a', 12],
      ['b', 3],
    ]);
  });

  it.each([
    ['eq(status, "error")', 'unknown field `status`'],
    ['and(search("x"), gt(turn_count, 1))', 'no text'],
    ['gt(turn_count, "1")', 'a number'],
    ['has(thread_id, "a")', 'operator of `thread_id`'],
    ['eq(thread_id', 'end of the expression'],
  ])('%s is refused', async (thread_filter, reason) => {
    for (const [url, select] of [['/v2/threads/query'], ['/v2/threads/stats', ['THREAD_COUNT']]] as const) {
      const { status, text } = await runs.ask({ url, body: { project_id: projectId, thread_filter, select } });
      expect([status, text]).toEqual([400, expect.stringContaining('thread_filter')]);
      expect(text).toContain(reason);
    }
  });
});

it('readThread of the stock SDK returns the root runs of a thread', async () => {
  const client = await openClient(runs.api, runs.ours.workspaceKeys[0]);
  const read = async (more: object = {}) => {
    const names: string[] = [];
    for await (const { name } of client.readThread({ threadId: 'a', projectId, ...more })) names.push(name);
    return names;
  };
  expect(await read()).toEqual(['turn 1', 'turn 3', 'turn 5']);
  expect(await read({ order: 'desc', limit: 1 })).toEqual(['turn 5']);
  expect(await read({ filter: 'has(tags, "bad")' })).toEqual(['turn 3']);
  expect(await read({ threadId: 'none' })).toEqual([]);
});
