import { randomUUID } from 'node:crypto';
import { beforeAll, describe, expect, it } from 'vitest';
import { forSuite } from '../../for-suite.ts';
import { startAgentServer } from './start-agent-server.ts';

/** Malformed requests at the byte level: each gets a clear error, and afterwards no run is in progress. */

const server = forSuite(() => startAgentServer());
let threadId: string;
let runId: string;
beforeAll(async () => {
  ({ thread_id: threadId } = await server.client.threads.create());
  const run = await server.client.runs.create(threadId, 'steps', { input: { steps: 1 } });
  runId = run.run_id;
  await server.client.runs.join(threadId, runId);
}, 120_000);

const missingId = randomUUID();
const validBody = { assistant_id: 'steps', input: { steps: 1 } };
const readErrorCode = async (answer: Response) => {
  const { code, remedy } = (await answer.json()) as { code: string; remedy: string };
  expect(remedy).toEqual(expect.any(String));
  return [answer.status, code];
};

describe('a missing resource', () => {
  it.each<[string, string, string, object | undefined, string]>([
    ['graph', 'POST', '/runs/wait', { assistant_id: 'nowhere' }, 'ASSISTANT_NOT_FOUND'],
    ['graph', 'POST', '/threads/{thread}/runs/stream', { assistant_id: missingId }, 'ASSISTANT_NOT_FOUND'],
    ['thread', 'POST', `/threads/${missingId}/runs/wait`, validBody, 'THREAD_NOT_FOUND'],
    ['thread', 'POST', `/threads/${missingId}/runs/stream`, validBody, 'THREAD_NOT_FOUND'],
    ['thread', 'GET', `/threads/${missingId}/stream`, undefined, 'THREAD_NOT_FOUND'],
    ['thread', 'GET', `/threads/${missingId}/runs`, undefined, 'THREAD_NOT_FOUND'],
    ['run', 'GET', `/threads/{thread}/runs/${missingId}`, undefined, 'RUN_NOT_FOUND'],
    ['run', 'GET', `/threads/{thread}/runs/${missingId}/join`, undefined, 'RUN_NOT_FOUND'],
    ['run', 'GET', `/threads/{thread}/runs/${missingId}/stream`, undefined, 'RUN_NOT_FOUND'],
    ['run', 'GET', `/runs/${missingId}/stream`, undefined, 'RUN_NOT_FOUND'],
    ['run', 'POST', `/threads/{thread}/runs/${missingId}/cancel`, undefined, 'RUN_NOT_FOUND'],
    ['run', 'DELETE', `/threads/{thread}/runs/${missingId}`, undefined, 'RUN_NOT_FOUND'],
    ['run of another thread', 'GET', `/threads/${missingId}/runs/{run}`, undefined, 'RUN_NOT_FOUND'],
    [
      'checkpoint',
      'POST',
      '/threads/{thread}/runs/wait',
      { ...validBody, checkpoint_id: missingId },
      'CHECKPOINT_NOT_FOUND',
    ],
    [
      'checkpoint',
      'POST',
      '/threads/{thread}/runs',
      { ...validBody, checkpoint: { checkpoint_id: missingId } },
      'CHECKPOINT_NOT_FOUND',
    ],
    ['checkpoint', 'GET', `/threads/{thread}/state/${missingId}`, undefined, 'CHECKPOINT_NOT_FOUND'],
  ])('%s: %s %s', async (_what, method, path, body, code) => {
    const answer = await server.ask(method, path.replace('{thread}', threadId).replace('{run}', runId), body);
    expect(await readErrorCode(answer)).toEqual([404, code]);
  });
});

it.each(['__proto__', 'constructor', 'nowhere'])(
  'the state of a thread with an unknown graph: %s',
  async (graph_id) => {
    const created = await server.ask('POST', '/threads', { metadata: { graph_id } });
    const path = `/threads/${((await created.json()) as { thread_id: string }).thread_id}/state`;
    expect(await readErrorCode(await server.ask('GET', path))).toEqual([404, 'GRAPH_NOT_FOUND']);
    const update = { values: { steps: 1 }, as_node: 'step', command: { goto: 'step' } };
    expect(await readErrorCode(await server.ask('POST', path, update))).toEqual([404, 'GRAPH_NOT_FOUND']);
  },
);

describe('a malformed value', () => {
  it.each<[string, string, string, object | undefined, unknown[]]>([
    ['id of a thread', 'POST', '/threads/1/runs', validBody, ['path', 'thread_id']],
    ['id of a run', 'GET', '/threads/{thread}/runs/1', undefined, ['path', 'run_id']],
    ['mode', 'POST', '/runs/stream', { ...validBody, stream_mode: ['values', 'sound'] }, ['body', 'stream_mode']],
    [
      'stream mode of a joined run',
      'GET',
      '/threads/{thread}/runs/{run}/stream?stream_mode=sound',
      undefined,
      ['query'],
    ],
    ['field', 'POST', '/threads/{thread}/runs/wait', { ...validBody, strict_resume: true }, ['body', 'strict_resume']],
    ['response field', 'GET', '/threads/{thread}/runs?select=color', undefined, ['query', 'select']],
    ['response field', 'POST', '/threads/search', { select: ['color'] }, ['body', 'select']],
    ['a checkpoint that is an array', 'POST', '/runs', { ...validBody, checkpoint: [] }, ['body', 'checkpoint']],
    ['a limit', 'GET', '/threads/{thread}/runs?limit=-1', undefined, ['query', 'limit']],
  ])('%s: %s %s', async (_what, method, path, body, loc) => {
    const answer = await server.ask(method, path.replace('{thread}', threadId).replace('{run}', runId), body);
    const { detail } = (await answer.json()) as { detail: { loc: unknown[] }[] };
    expect([answer.status, detail.map((each) => each.loc.slice(0, loc.length))]).toEqual([422, [loc]]);
  });

  it.each<[string, string, number, string]>([
    ['text', 'hello', 422, 'INVALID_JSON'],
    ['truncated object', '{"assistant_id": "steps"', 422, 'INVALID_JSON'],
    ['an array', '[]', 422, 'INVALID_REQUEST'],
    ['nothing', '', 422, 'INVALID_REQUEST'],
    [
      'deeply nested arrays',
      `{"assistant_id":"steps","input":${'['.repeat(5_000)}${']'.repeat(5_000)}}`,
      422,
      'TOO_DEEP',
    ],
  ])('a body that is %s', async (_what, body, status, code) => {
    const headers = { 'x-api-key': server.owner.adminKey, 'content-type': 'application/json' };
    const answer = await fetch(`${server.url}/runs/wait`, { method: 'POST', headers, body });
    expect(await readErrorCode(answer)).toEqual([status, code]);
  });
});

it('ignores configurable keys that are internal to the library', async () => {
  const configurable = { __pregel_checkpointer: {}, __pregel_task_id: 'x', __pregel_stream: {}, kept: 1 };
  expect(await server.client.runs.wait(null, 'steps', { input: { steps: 1 }, config: { configurable } })).toMatchObject(
    {
      count: 1,
    },
  );
});

it('rejects a path that is too long with its own error', async () => {
  const answer = await server.ask('GET', `/threads/${'x'.repeat(70_000)}`);
  expect(await readErrorCode(answer)).toEqual([414, 'URL_TOO_LONG']);
});

describe('Content-Type', () => {
  const post = (headers: Record<string, string>, body: string) =>
    fetch(`${server.url}/threads/count`, {
      method: 'POST',
      headers: { 'x-api-key': server.owner.adminKey, ...headers },
      body: Buffer.from(body),
    });

  it.each(['text/plain', 'text/plain;charset=UTF-8', 'application/x-www-form-urlencoded', 'application/octet-stream'])(
    'accepts %s if the body is JSON',
    async (type) => {
      const answer = await post({ 'content-type': type }, '{"metadata":{"no":"such"}}');
      expect([answer.status, await answer.json()]).toEqual([200, 0]);
      expect(await readErrorCode(await post({ 'content-type': type }, 'metadata=a'))).toEqual([
        415,
        'UNSUPPORTED_MEDIA_TYPE',
      ]);
    },
  );

  it('is optional', async () => {
    expect((await post({}, '{}')).status).toBe(200);
  });

  it('must be JSON for a browser page, which requires a CORS preflight', async () => {
    const origin = 'https://elsewhere.example';
    const refused = await post({ 'content-type': 'text/plain', origin }, '{}');
    expect(await readErrorCode(refused)).toEqual([415, 'UNSUPPORTED_MEDIA_TYPE']);
    expect((await post({ 'content-type': 'application/json', origin }, '{}')).status).toBe(200);
  });
});

describe('Accept', () => {
  const stream = (accept: string, path = '/runs/stream') => server.ask('POST', path, validBody, { accept });

  it.each(['application/json', 'text/html, image/*', 'text/event-stream;q=0'])(
    '%s does not accept events',
    async (accept) => {
      expect(await readErrorCode(await stream(accept))).toEqual([406, 'EVENT_STREAM_NOT_ACCEPTED']);
      const joined = await server.ask('GET', `/threads/${threadId}/runs/${runId}/stream`, undefined, { accept });
      expect(joined.status).toBe(406);
    },
  );

  it.each(['*/*', 'text/event-stream', 'application/json, text/*;q=0.5', ''])('"%s" accepts events', async (accept) => {
    const answer = await stream(accept);
    expect([answer.status, (await answer.text()).includes('event: values')]).toEqual([200, true]);
  });
});

describe('large data', () => {
  it('runs and stores 10 MB of input', { timeout: 60_000 }, async () => {
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
    'reports state that is %s as an error, and the thread can run again',
    { timeout: 60_000 },
    async (how) => {
      const { thread_id: id } = await server.client.threads.create();
      const answer = await server.ask('POST', `/threads/${id}/runs/stream`, {
        assistant_id: 'misbehave',
        input: { how: `${how}-state` },
        stream_mode: ['updates'],
      });
      const text = await answer.text();
      expect(text).toMatch(/^event: (?:warning|error)$/m);
      expect(text).toMatch(how === 'large' ? /EventTooLarge/ : /circular/i);
      const { status } = await server.client.threads.get(id);
      expect(['idle', 'error']).toContain(status);
      expect(await server.client.runs.wait(id, 'burst', { input: { n: 1 } })).toMatchObject({ done: 1 });
    },
  );
});

it('truncates a large error for clients that wait, stream or read it later', { timeout: 60_000 }, async () => {
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

it('reports an error without text as an error of its run, and keeps its process', async () => {
  const { threads, runs } = server.client;
  const { thread_id: id } = await threads.create();
  await expect(runs.wait(id, 'misbehave', { input: { how: 'textless-error' } })).rejects.toThrow('has no text');
  expect(await threads.get(id)).toMatchObject({ status: 'error', error: { error: 'Error' } });
});

it('leaves no run in progress', async () => {
  const busy = () => server.client.threads.search({ status: 'busy' });
  await expect.poll(busy, { timeout: 10_000 }).toEqual([]);
  const runs = await server.database.query("SELECT run_id FROM agents.runs WHERE status IN ('pending', 'running')");
  expect(runs).toEqual([]);
  expect(await server.client.runs.wait(null, 'steps', { input: { steps: 1 } })).toMatchObject({ count: 1 });
});
