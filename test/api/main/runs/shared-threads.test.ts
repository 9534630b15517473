import { randomUUID } from 'node:crypto';
import { Client } from 'langsmith-0-12';
import { beforeAll, describe, expect, it } from 'vitest';
import type { RunEvent } from '../../../../pipelines/ingest/run-event/run-event.ts';
import { forSuite } from '../../../for-suite.ts';
import { insertEvents, json, noonMicros, runEvent } from '../../../pipelines/runs/run-events.ts';
import { startRunsApi } from './runs.fixture.ts';

const runs = forSuite(() => startRunsApi());
let url: string;

/** Adds the traces of a thread, one minute apart. Each has a root run with inputs and outputs, and a child. */
async function addThread(threadId: string, turns: readonly { readonly inputs: object; readonly outputs?: object }[]) {
  const tenantId = runs.ours.workspaceIds[0];
  const events = turns.flatMap(({ inputs, outputs }, at): RunEvent[] => {
    const startTimeMicros = noonMicros + at * 60_000_000;
    const values = {
      name: `${threadId} ${at}`,
      runType: 'chain' as const,
      inputs: json(inputs),
      extra: json({ metadata: { thread_id: threadId } }),
      ...(outputs && { outputs: json(outputs) }),
    };
    const traceTimeMicros = startTimeMicros;
    const root = runEvent({ tenantId, projectId: runs.projectId, startTimeMicros, traceTimeMicros, values });
    const child = runEvent({
      tenantId,
      projectId: runs.projectId,
      traceId: root.runId,
      startTimeMicros: startTimeMicros + 1_000_000,
      traceTimeMicros,
      values: { name: `child of ${threadId} ${at}`, parentRunId: root.runId },
    });
    return [root, child];
  });
  await insertEvents(runs.api.services.clickhouse, events);
  return events.map(({ runId }) => runId);
}

beforeAll(async () => {
  url = await runs.api.listen();
});

const ask = (path: string, body?: unknown) => runs.ask({ url: path, ...(body === undefined ? {} : { body }) });

describe('previews', () => {
  const preview = async (threadId: string, more = '') =>
    (await ask(`/runs/threads/${threadId}?session_id=${runs.projectId}${more}`)).body.previews as Record<
      string,
      string
    >;
  const human = (content: unknown) => ({ type: 'human', content });
  const ai = (content: unknown) => ({ type: 'ai', content });

  it('shows each message once, although later turns repeat the conversation', async () => {
    const first = [{ role: 'system', content: 'be kind' }, human('one?')];
    const second = [...first, ai('one.'), human([{ type: 'text', text: 'two?' }])];
    await addThread('repeated', [
      { inputs: { messages: first }, outputs: { messages: [...first, ai('one.')] } },
      { inputs: { messages: second }, outputs: { messages: [ai('two.')] } },
      {
        inputs: { messages: [human('three?')] },
        outputs: { choices: [{ message: { role: 'assistant', content: '3' } }] },
      },
    ]);
    expect(await preview('repeated')).toEqual({
      all_messages: expect.stringMatching(
        /^System: be kind\n\nHuman: one\?\n\nAI: one\.\n\nHuman: two\?\n\nAI: two\.\n\nHuman: three\?\n\nAI: /,
      ),
      human_ai_pairs: expect.stringMatching(
        /^Human: one\?\n\nAI: one\.\n\nHuman: two\?\n\nAI: two\.\n\nHuman: three\?\n\nAI: /,
      ),
      first_human_last_ai: expect.stringMatching(/^Human: one\?\n\nAI: /),
    });
  });

  it('shows values that are no messages, and turns that have not ended', async () => {
    await addThread('plain', [
      { inputs: { question: 'one?' }, outputs: { answer: 'one.', sources: [] } },
      { inputs: ['two?'] },
    ]);
    const pairs = 'Human: one?\n\nAI: {"answer":"one.","sources":[]}\n\nHuman: ["two?"]';
    expect(await preview('plain', '&select=human_ai_pairs')).toEqual({ human_ai_pairs: pairs });
    expect(await preview('plain', '&select=first_human_last_ai')).toEqual({ first_human_last_ai: 'Human: one?' });
  });

  it('shows a role that is the name of an inherited member', async () => {
    await addThread('inherited', [{ inputs: { messages: [{ role: 'constructor', content: 'hello' }] } }]);
    expect(await preview('inherited', '&select=all_messages')).toEqual({ all_messages: 'constructor: hello' });
  });

  it('cuts long conversations', async () => {
    await addThread(
      'long',
      Array.from({ length: 45 }, (_, at) => ({ inputs: { q: `${at}${'é'.repeat(500)}` }, outputs: { a: `${at}!` } })),
    );
    const { human_ai_pairs = '', first_human_last_ai } = await preview('long');
    expect([human_ai_pairs.length, human_ai_pairs.at(-1)]).toEqual([10_001, '…']);
    expect(first_human_last_ai).toMatch(/AI: 44!$/);
  });

  it('refuses unknown threads, projects and forms', async () => {
    expect((await ask(`/runs/threads/none?session_id=${runs.projectId}`)).status).toBe(404);
    expect((await ask(`/runs/threads/repeated?session_id=${randomUUID()}`)).status).toBe(404);
    expect((await ask(`/runs/threads/repeated?session_id=${runs.projectId}&select=none`)).status).toBe(422);
    expect((await ask('/runs/threads/repeated')).status).toBe(422);
    expect((await ask(`/runs/threads/repeated?session_id=${runs.projectId}&variables=a`)).status).toBe(400);
  });
});

describe('shared threads', () => {
  const stranger = () => new Client({ apiUrl: url, apiKey: 'none' });
  const project = () => ({ project_id: runs.projectId });
  const member = (apiKey = runs.ours.workspaceKeys[0]) => new Client({ apiUrl: url, apiKey });
  const share = async (threadId: string) =>
    (await member().threads.share.create(threadId, project())).share_token as string;

  it('are read by their token, with later traces, until the sharing ends', async () => {
    const [rootId = ''] = await addThread('a/b', [{ inputs: { q: 1 } }, { inputs: { q: 2 } }]);
    const [otherId = ''] = await addThread('other', [{ inputs: { q: 'secret' } }]);
    const token = await share('a/b');
    expect(await share('a/b')).toBe(token);
    expect(await member().threads.share.retrieve('a/b', project())).toEqual({ share_token: token });
    const names = async () =>
      (await stranger().public.runs.query(token, { selects: ['NAME'] })).items?.map(({ name }) => name).sort();
    expect(await names()).toEqual(['a/b 0', 'a/b 1', 'child of a/b 0', 'child of a/b 1']);
    const run = { share_token: token, start_time: new Date().toISOString(), selects: ['NAME' as const] };
    expect(await stranger().public.runs.retrieve(rootId, run)).toEqual({ name: 'a/b 0' });
    await expect(stranger().public.runs.retrieve(otherId, run)).rejects.toMatchObject({ status: 404 });
    const read = async (path: string, body?: object) => {
      const answer = await fetch(`${url}/api/v1/public/${token}/${path}`, {
        ...(body && { method: 'POST', body: JSON.stringify(body), headers: { 'content-type': 'application/json' } }),
      });
      return { status: answer.status, body: (await answer.json()) as Record<string, unknown> };
    };
    expect((await read('run')).body).toMatchObject({ name: 'a/b 1' });
    expect((await read('runs/query', { filter: 'eq(name, "child of a/b 0")' })).body.runs).toHaveLength(1);
    expect((await read('runs/query', { filter: 'or(eq(name, "other 0"), eq(name, "none"))' })).body.runs).toEqual([]);

    await addThread('a/b', [{ inputs: { q: 3 } }]);
    expect(await names()).toHaveLength(6);
    await member().threads.share.delete('a/b', project());
    await expect(names()).rejects.toMatchObject({ status: 404 });
    expect(await member().threads.share.retrieve('a/b', project())).toEqual({});
  });

  it('need the thread, the project and the permission', async () => {
    await expect(share('nothing')).rejects.toMatchObject({ status: 404 });
    const of = (apiKey: string) => member(apiKey).threads.share.create('other', project());
    await expect(of(runs.keyWithoutRunsRead)).rejects.toMatchObject({ status: 403 });
    await expect(of(runs.theirs.workspaceKeys[0])).rejects.toMatchObject({ status: 404 });
    expect((await ask('/v2/threads/other/share', {})).status).toBe(422);
  });
});

it('the URL of a run is the page that clients link to', async () => {
  const [rootId = '', childId = ''] = runs.trace.map(({ runId }) => runId);
  const query = `project_id=${runs.projectId}&trace_id=${rootId}`;
  const client = new Client({ apiUrl: url, apiKey: runs.ours.workspaceKeys[0] });
  const found = await client.runs.getURL(childId, { project_id: runs.projectId, trace_id: rootId });
  const { app_path } = (await ask(`/runs/${childId}`)).body;
  expect(new URL(found.url ?? '').pathname).toBe(String(app_path).split('?')[0]);
  expect(found.url).toContain(`/projects/p/${runs.projectId}/r/${childId}?trace_id=${rootId}`);
  expect((await ask(`/v2/runs/${childId}/url?project_id=${runs.projectId}&trace_id=${childId}`)).status).toBe(404);
  expect((await ask(`/v2/runs/${randomUUID()}/url?${query}`)).status).toBe(404);
  expect((await ask(`/v2/runs/${childId}/url`)).status).toBe(422);
});
