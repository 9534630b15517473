import { randomUUID } from 'node:crypto';
import { Client } from 'langsmith-0-12';
import { beforeAll, describe, expect, it } from 'vitest';
import { forSuite } from '../../../for-suite.ts';
import { insertEvents, json, noonMicros, runEvent } from '../../../pipelines/runs/run-events.ts';
import { collect } from '../../collect.ts';
import { openClient } from '../../open-client.ts';
import { startRunsApi } from './runs.fixture.ts';

const runs = forSuite(() => startRunsApi());
let client: Client;
const min_start_time = new Date(noonMicros / 1_000 - 60_000).toISOString();

beforeAll(async () => {
  const thread = (turn: number) =>
    runEvent({
      tenantId: runs.ours.workspaceIds[0],
      projectId: runs.projectId,
      startTimeMicros: noonMicros + turn * 1_000_000,
      // Line breaks between tokens, as in JSON that was indented, must not end the event.
      values: {
        name: `turn ${turn}`,
        inputs: Buffer.from('{\r\n  "text":\n"a\\nb"\r}'),
        extra: json({ metadata: { thread_id: `thread ${turn}` } }),
      },
    });
  await insertEvents(runs.api.services.clickhouse, [1, 2, 3, 4, 5].map(thread));
  client = await openClient(runs.api, runs.ours.workspaceKeys[0], { callerOptions: { maxRetries: 0 } }, Client);
});

describe('the stock SDK 0.12 streams', () => {
  it('runs, over several pages', async () => {
    const query = { project_ids: [runs.projectId], min_start_time, page_size: 3, selects: ['NAME', 'INPUTS'] as never };
    const items = await collect(client.runs.streaming.queryV2Items(query));
    expect(items).toHaveLength(8);
    expect(items).toContainEqual({ name: 'turn 5', inputs: { text: 'a\nb' } });
    expect(items).toContainEqual({ name: 'root', inputs: { name: 'root' } });
    const [event] = await collect(await client.runs.streaming.queryV2(query));
    expect(event).toEqual([
      { op: 'replace', path: '', value: { items: expect.any(Array), next_cursor: expect.any(String), has_more: true } },
    ]);
  });

  it('traces and threads, over several pages', async () => {
    const query = { project_id: runs.projectId, min_start_time, page_size: 2 };
    const traces = await collect(client.traces.streaming.queryItems({ ...query, selects: ['NAME'] as never }));
    expect(traces).toHaveLength(6);
    expect(traces).toContainEqual({ root_run: { name: 'turn 1' } });
    const threads = await collect(client.threads.streaming.queryItems(query));
    expect(threads.map(({ thread_id }) => thread_id)).toEqual([5, 4, 3, 2, 1].map((turn) => `thread ${turn}`));
  });

  it('no items of another workspace, and errors as errors', async () => {
    const stranger = await openClient(runs.api, runs.theirs.workspaceKeys[0], {}, Client);
    const query = { project_ids: [runs.projectId], min_start_time };
    await expect(collect(stranger.runs.streaming.queryV2Items(query))).rejects.toMatchObject({ status: 404 });
    const invalid = client.runs.streaming.queryV2Items({ ...query, filter: 'eq(' });
    await expect(collect(invalid)).rejects.toMatchObject({ status: 400 });
    const empty = { ...query, filter: 'eq(name, "none")' };
    expect(await collect(client.runs.streaming.queryV2Items(empty))).toEqual([]);
  });
});

it.each([
  ['text/event-stream', 'text/event-stream'],
  ['Text/Event-Stream; q=1', 'text/event-stream'],
  ['application/json, text/event-stream', 'application/json'],
  ['*/*', 'application/json'],
])('Accept: %s gets %s', async (accept, type) => {
  const answer = await runs.api.server.inject({
    method: 'POST',
    url: '/v2/runs/query',
    headers: { 'x-api-key': runs.ours.workspaceKeys[0], accept },
    payload: { project_ids: [runs.projectId], min_start_time },
  });
  expect([answer.statusCode, String(answer.headers['content-type'])]).toEqual([200, expect.stringContaining(type)]);
});

describe('parameters of the stock SDK 0.12', () => {
  it('that are not built are refused', async () => {
    const scope = { project_ids: [runs.projectId], project_id: runs.projectId };
    const refuse = (path: string, body: object) => runs.ask({ url: path, body: { ...scope, ...body } });
    for (const [path, names] of [
      ['/v2/runs/query', ['ai_search', 'min_feedback_modified_at', 'max_feedback_modified_at']],
      ['/v2/traces/query', ['ai_search', 'min_feedback_modified_at', 'max_feedback_modified_at']],
      ['/v2/threads/query', ['ai_search']],
    ] as const) {
      for (const name of names) {
        const { status, text } = await refuse(path, { [name]: new Date().toISOString() });
        expect([path, name, status]).toEqual([path, name, 400]);
        expect(text).toContain(name);
      }
    }
  });

  it('filter the traces of a thread by the root and by any run', async () => {
    const threadId = randomUUID();
    const inProject = { tenantId: runs.ours.workspaceIds[0], projectId: runs.projectId };
    const root = (name: string) =>
      runEvent({ ...inProject, values: { name, extra: json({ metadata: { thread_id: threadId } }) } });
    const [one, other] = [root('one'), root('other')];
    const child = runEvent({
      ...inProject,
      traceId: one.runId,
      traceTimeMicros: noonMicros,
      startTimeMicros: noonMicros + 1,
      values: { name: 'tool', parentRunId: one.runId },
    });
    await insertEvents(runs.api.services.clickhouse, [one, other, child]);
    const list = async (filters: object) => {
      const params = { project_id: runs.projectId, ...filters };
      return (await collect(client.threads.listTraces(threadId, params))).map(({ trace_id }) => trace_id);
    };
    expect((await list({})).sort()).toEqual([one.runId, other.runId].sort());
    expect(await list({ trace_filter: 'eq(name, "other")' })).toEqual([other.runId]);
    expect(await list({ tree_filter: 'eq(name, "tool")' })).toEqual([one.runId]);
  });
});
