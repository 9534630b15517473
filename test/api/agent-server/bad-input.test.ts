import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type AgentServerUnderTest, startAgentServer } from './start-agent-server.ts';

/** What clients should not send, as bytes: each is answered with a clear error, and nothing hangs afterwards. */

let server: AgentServerUnderTest;
let threadId: string;
let runId: string;
beforeAll(async () => {
  server = await startAgentServer();
  ({ thread_id: threadId } = await server.client.threads.create());
  const run = await server.client.runs.create(threadId, 'steps', { input: { steps: 1 } });
  runId = run.run_id;
  await server.client.runs.join(threadId, runId);
}, 120_000);
afterAll(() => server?.close());

const nobody = randomUUID();
const sound = { assistant_id: 'steps', input: { steps: 1 } };
const codeOf = async (answer: Response) => {
  const { code, remedy } = (await answer.json()) as { code: string; remedy: string };
  expect(remedy).toEqual(expect.any(String));
  return [answer.status, code];
};

describe('what is not there', () => {
  it.each<[string, string, string, object | undefined, string]>([
    ['graph', 'POST', '/runs/wait', { assistant_id: 'nowhere' }, 'ASSISTANT_NOT_FOUND'],
    ['graph', 'POST', '/threads/{thread}/runs/stream', { assistant_id: nobody }, 'ASSISTANT_NOT_FOUND'],
    ['thread', 'POST', `/threads/${nobody}/runs/wait`, sound, 'THREAD_NOT_FOUND'],
    ['thread', 'POST', `/threads/${nobody}/runs/stream`, sound, 'THREAD_NOT_FOUND'],
    ['thread', 'GET', `/threads/${nobody}/stream`, undefined, 'THREAD_NOT_FOUND'],
    ['thread', 'GET', `/threads/${nobody}/runs`, undefined, 'THREAD_NOT_FOUND'],
    ['run', 'GET', `/threads/{thread}/runs/${nobody}`, undefined, 'RUN_NOT_FOUND'],
    ['run', 'GET', `/threads/{thread}/runs/${nobody}/join`, undefined, 'RUN_NOT_FOUND'],
    ['run', 'GET', `/threads/{thread}/runs/${nobody}/stream`, undefined, 'RUN_NOT_FOUND'],
    ['run', 'GET', `/runs/${nobody}/stream`, undefined, 'RUN_NOT_FOUND'],
    ['run', 'POST', `/threads/{thread}/runs/${nobody}/cancel`, undefined, 'RUN_NOT_FOUND'],
    ['run', 'DELETE', `/threads/{thread}/runs/${nobody}`, undefined, 'RUN_NOT_FOUND'],
    ['run of another thread', 'GET', `/threads/${nobody}/runs/{run}`, undefined, 'RUN_NOT_FOUND'],
    ['checkpoint', 'POST', '/threads/{thread}/runs/wait', { ...sound, checkpoint_id: nobody }, 'CHECKPOINT_NOT_FOUND'],
    [
      'checkpoint',
      'POST',
      '/threads/{thread}/runs',
      { ...sound, checkpoint: { checkpoint_id: nobody } },
      'CHECKPOINT_NOT_FOUND',
    ],
    ['checkpoint', 'GET', `/threads/{thread}/state/${nobody}`, undefined, 'CHECKPOINT_NOT_FOUND'],
  ])('%s: %s %s', async (_what, method, path, body, code) => {
    const answer = await server.ask(method, path.replace('{thread}', threadId).replace('{run}', runId), body);
    expect(await codeOf(answer)).toEqual([404, code]);
  });
});

describe('what has another form', () => {
  it.each<[string, string, string, object | undefined, unknown[]]>([
    ['id of a thread', 'POST', '/threads/1/runs', sound, ['path', 'thread_id']],
    ['id of a run', 'GET', '/threads/{thread}/runs/1', undefined, ['path', 'run_id']],
    ['mode', 'POST', '/runs/stream', { ...sound, stream_mode: ['values', 'sound'] }, ['body', 'stream_mode']],
    ['mode of a reader', 'GET', '/threads/{thread}/runs/{run}/stream?stream_mode=sound', undefined, ['query']],
    ['field', 'POST', '/threads/{thread}/runs/wait', { ...sound, strict_resume: true }, ['body', 'strict_resume']],
    ['field of an answer', 'GET', '/threads/{thread}/runs?select=color', undefined, ['query', 'select']],
    ['field of an answer', 'POST', '/threads/search', { select: ['color'] }, ['body', 'select']],
    ['a checkpoint that is a list', 'POST', '/runs', { ...sound, checkpoint: [] }, ['body', 'checkpoint']],
    ['a limit', 'GET', '/threads/{thread}/runs?limit=-1', undefined, ['query', 'limit']],
  ])('%s: %s %s', async (_what, method, path, body, loc) => {
    const answer = await server.ask(method, path.replace('{thread}', threadId).replace('{run}', runId), body);
    const { detail } = (await answer.json()) as { detail: { loc: unknown[] }[] };
    expect([answer.status, detail.map((each) => each.loc.slice(0, loc.length))]).toEqual([422, [loc]]);
  });

  it.each<[string, string, number, string]>([
    ['text', 'hello', 422, 'INVALID_JSON'],
    ['half of an object', '{"assistant_id": "steps"', 422, 'INVALID_JSON'],
    ['an array', '[]', 422, 'INVALID_REQUEST'],
    ['nothing', '', 422, 'INVALID_REQUEST'],
    ['a nest of arrays', `{"assistant_id":"steps","input":${'['.repeat(5_000)}${']'.repeat(5_000)}}`, 422, 'TOO_DEEP'],
  ])('a body that is %s', async (_what, body, status, code) => {
    const headers = { 'x-api-key': server.owner.adminKey, 'content-type': 'application/json' };
    const answer = await fetch(`${server.url}/runs/wait`, { method: 'POST', headers, body });
    expect(await codeOf(answer)).toEqual([status, code]);
  });
});

it("names of the library's own machinery in a configuration say nothing", async () => {
  const configurable = { __pregel_checkpointer: {}, __pregel_task_id: 'x', __pregel_stream: {}, kept: 1 };
  expect(await server.client.runs.wait(null, 'steps', { input: { steps: 1 }, config: { configurable } })).toMatchObject(
    {
      count: 1,
    },
  );
});

it('a path that is too long is refused as that', async () => {
  const answer = await server.ask('GET', `/threads/${'x'.repeat(70_000)}`);
  expect(await codeOf(answer)).toEqual([414, 'URL_TOO_LONG']);
});

describe('Content-Type', () => {
  const post = (headers: Record<string, string>, body: string) =>
    fetch(`${server.url}/threads/count`, {
      method: 'POST',
      headers: { 'x-api-key': server.owner.adminKey, ...headers },
      body: Buffer.from(body),
    });

  it.each(['text/plain', 'text/plain;charset=UTF-8', 'application/x-www-form-urlencoded', 'application/octet-stream'])(
    '%s is taken where the body is JSON',
    async (type) => {
      const answer = await post({ 'content-type': type }, '{"metadata":{"no":"such"}}');
      expect([answer.status, await answer.json()]).toEqual([200, 0]);
      expect(await codeOf(await post({ 'content-type': type }, 'metadata=a'))).toEqual([415, 'UNSUPPORTED_MEDIA_TYPE']);
    },
  );

  it('is not needed', async () => {
    expect((await post({}, '{}')).status).toBe(200);
  });

  it('of a page has to be JSON, which browsers ask about first', async () => {
    const origin = 'https://elsewhere.example';
    const refused = await post({ 'content-type': 'text/plain', origin }, '{}');
    expect(await codeOf(refused)).toEqual([415, 'UNSUPPORTED_MEDIA_TYPE']);
    expect((await post({ 'content-type': 'application/json', origin }, '{}')).status).toBe(200);
  });
});

describe('Accept', () => {
  const stream = (accept: string, path = '/runs/stream') => server.ask('POST', path, sound, { accept });

  it.each(['application/json', 'text/html, image/*', 'text/event-stream;q=0'])(
    '%s leaves events out',
    async (accept) => {
      expect(await codeOf(await stream(accept))).toEqual([406, 'EVENT_STREAM_NOT_ACCEPTED']);
      const joined = await server.ask('GET', `/threads/${threadId}/runs/${runId}/stream`, undefined, { accept });
      expect(joined.status).toBe(406);
    },
  );

  it.each(['*/*', 'text/event-stream', 'application/json, text/*;q=0.5', ''])('"%s" takes them', async (accept) => {
    const answer = await stream(accept);
    expect([answer.status, (await answer.text()).includes('event: values')]).toEqual([200, true]);
  });
});

describe('much of it', () => {
  it('10 MB of input are run and kept', { timeout: 60_000 }, async () => {
    const text = 'x'.repeat(10 * 1024 * 1024);
    const { thread_id: id } = await server.client.threads.create();
    const answer = await server.ask('POST', `/threads/${id}/runs/wait`, {
      assistant_id: 'ask',
      input: { question: text },
    });
    const values = (await answer.json()) as { question: string };
    expect([answer.status, values.question.length]).toEqual([200, text.length]);
    const state = await server.client.threads.getState<{ question: string }>(id);
    expect(state.values.question.length).toBe(text.length);
  });

  it.each(['circular', 'large'])(
    'state that is %s is told as an error, and its thread can be run again',
    { timeout: 60_000 },
    async (how) => {
      const { thread_id: id } = await server.client.threads.create();
      const answer = await server.ask('POST', `/threads/${id}/runs/stream`, {
        assistant_id: 'misbehave',
        input: { how: `${how}-state` },
        stream_mode: ['updates'],
      });
      const text = await answer.text();
      expect(text).toMatch(/^event: error$/m);
      expect(text).toMatch(how === 'large' ? /EventTooLarge/ : /circular/i);
      const { status } = await server.client.threads.get(id);
      expect(['idle', 'error']).toContain(status);
      expect(await server.client.runs.wait(id, 'burst', { input: { n: 1 } })).toMatchObject({ done: 1 });
    },
  );
});

it('an error that is large is told in part, to whoever waits, reads or looks later', { timeout: 60_000 }, async () => {
  const { thread_id: id } = await server.client.threads.create();
  const body = { assistant_id: 'misbehave', input: { how: 'large-error' } };
  const answers = ['wait', 'stream'].map((way) => server.ask('POST', `/threads/${id}/runs/${way}`, body));
  for (const answer of answers) {
    const text = await (await answer).text();
    expect(text).toContain('"error":"Error"');
    expect(text).toContain('(9437185 characters in total)');
    expect(text.length).toBeLessThan(100_000);
  }
  expect(JSON.stringify((await server.client.threads.get(id)).error).length).toBeLessThan(70_000);
});

it('an error that has no text is one of the run, and not of its process', async () => {
  const { threads, runs } = server.client;
  const { thread_id: id } = await threads.create();
  await expect(runs.wait(id, 'misbehave', { input: { how: 'textless-error' } })).rejects.toThrow('has no text');
  expect(await threads.get(id)).toMatchObject({ status: 'error', error: { error: 'Error' } });
});

it('nothing of it is under way afterwards', async () => {
  const busy = () => server.client.threads.search({ status: 'busy' });
  await expect.poll(busy, { timeout: 10_000 }).toEqual([]);
  const runs = await server.database.query("SELECT run_id FROM agents.runs WHERE status IN ('pending', 'running')");
  expect(runs).toEqual([]);
  expect(await server.client.runs.wait(null, 'steps', { input: { steps: 1 } })).toMatchObject({ count: 1 });
});
