import { randomUUID } from 'node:crypto';
import { Client } from 'langgraph-sdk-1-15';
import { describe, expect, it } from 'vitest';
import { agentOperations } from '../../../api/agent-server/operations.ts';
import { forSuite } from '../../for-suite.ts';
import { startAgentServer } from './start-agent-server.ts';

/**
 * The server never ignores a field that a client relies on: fields that clients know but this server does not implement
 * are rejected. Names unknown to all clients are ignored and named in the response, so that newer clients keep working.
 */

const server = forSuite(() => startAgentServer());

interface Refusal {
  readonly detail: readonly { readonly loc: readonly unknown[]; readonly msg: string }[];
}

async function refusedLocations(method: string, path: string, body: unknown): Promise<unknown[]> {
  const answer = await server.ask(method, path, body);
  const { detail } = (await answer.json()) as Refusal;
  expect([answer.status, detail]).toEqual([422, expect.any(Array)]);
  return detail.map(({ loc }) => loc);
}

describe('an unknown field', () => {
  // MCP, A2A and the v2 protocol have their own envelopes; the v2 protocol allows any field in filters.
  const own = new Set(['postMcp', 'deleteMcp', 'postA2a', 'postThreadCommand', 'streamThreadEvents']);
  const operations = agentOperations.filter(({ method, operationId }) => method !== 'GET' && !own.has(operationId));
  const ignored = (answer: Response) => answer.headers.get('x-ignored-fields');

  it.each(operations.map(({ operationId, ...rest }) => [operationId, rest] as const))(
    'is ignored and named in the response of %s',
    async (_, { method, path, schema }) => {
      const isList = (schema.body as { type?: string } | undefined)?.type === 'array';
      const unknownField = { surprise: 1 };
      const body = isList ? [unknownField] : unknownField;
      const answer = await server.ask(method, path.replace(/:\w+/g, randomUUID()), body);
      expect(ignored(answer)).toBe('surprise');
      expect(await answer.text()).not.toContain('surprise');
    },
  );

  const run = { assistant_id: 'steps', input: { steps: 1 } };
  it.each<[string, object, string]>([
    ['/runs/wait', { ...run, command: { update: { steps: 1 }, wait: true } }, 'command.wait'],
    ['/runs/wait', { ...run, langsmith_tracer: { project: 'a' } }, 'langsmith_tracer.project'],
    ['/runs/wait', { ...run, config: { run_name: 'a', configurable: { kept: 1 } } }, 'config.run_name'],
    [
      '/runs/batch',
      [
        { ...run, streamModes: 'values' },
        { ...run, streamModes: 'values' },
      ],
      'streamModes',
    ],
    ['/threads', { ttl: { ttl: 5, minutes: 5 } }, 'ttl.minutes'],
    [
      '/threads',
      { metadata: { graph_id: 'steps' }, supersteps: [{ updates: [{ values: {}, as_node: 'step' }], at: 1 }] },
      'supersteps.at',
    ],
  ])('is ignored in nested objects, and the request succeeds: %s %j', async (path, body, name) => {
    const answer = await server.ask('POST', path, body);
    expect([answer.status, ignored(answer)]).toEqual([200, name]);
  });

  it('is not searched in free-form values', async () => {
    const free = { surprise: { surprise: 1 } };
    const body = { ...run, metadata: free, config: { configurable: free, metadata: free }, context: free };
    const answer = await server.ask('POST', '/runs', { ...body, input: { ...run.input, ...free } });
    expect([answer.status, ignored(answer)]).toEqual([200, null]);
    expect(await answer.json()).toMatchObject({ metadata: free, kwargs: { context: free, input: free } });
  });

  it('cannot inject lines into headers or logs, nor flood them', async () => {
    const names = ['a\r\nset-cookie: b', 'x, y', '\u{1f600}', '\ud800', '__proto__', 'z'.repeat(1_000)];
    const many = Object.fromEntries(Array.from({ length: 1_000 }, (_, location) => [`many${location}`, 1]));
    const text = JSON.stringify(Object.fromEntries(names.map((name) => [name, 1])));
    const headers = { 'x-api-key': server.owner.adminKey, 'content-type': 'application/json' };
    const answer = await fetch(`${server.url}/threads/count`, { method: 'POST', headers, body: text });
    expect(answer.status).toBe(200);
    expect(ignored(answer)).toBe(
      `a%0D%0Aset-cookie%3A%20b, x%2C%20y, %F0%9F%98%80, %EF%BF%BD, __proto__, ${'z'.repeat(64)}`,
    );
    const counted = ignored(await server.ask('POST', '/threads/count', many))?.split(', ');
    expect(counted).toHaveLength(21);
    expect(counted?.at(-1)).toBe('...');
  });
});

describe('a field that clients know and that is not implemented', () => {
  const cron = { assistant_id: 'echo', schedule: '* * * * *' };
  it.each<[string, string, object, readonly unknown[]]>([
    ['POST', '/runs/batch', [{ assistant_id: 'echo', thread_id: randomUUID() }], [0, 'thread_id']],
    ['POST', '/runs', { assistant_id: 'echo', strict_resume: true }, ['strict_resume']],
    ['POST', '/runs/crons', { ...cron, command: { resume: 1 } }, ['command']],
    ['POST', '/runs/crons', { ...cron, after_seconds: 5 }, ['after_seconds']],
    ['POST', `/threads/${randomUUID()}/runs/crons`, { ...cron, checkpoint_id: randomUUID() }, ['checkpoint_id']],
    ['PATCH', `/runs/crons/${randomUUID()}`, { assistant_id: 'steps' }, ['assistant_id']],
  ])('is rejected: %s %s %j', async (method, path, body, location) => {
    expect(await refusedLocations(method, path, body)).toContainEqual(['body', ...location]);
  });

  it('is an error of a command of the v2 protocol', async () => {
    const path = `/threads/${randomUUID()}/commands`;
    const sendCommand = async (method: string, params: object) =>
      (await server.ask('POST', path, { id: 1, method, params })).json();
    for (const [method, params] of [
      ['run.start', { assistant_id: 'echo', forkFrom: 'a' }],
      ['input.respond', { interrupt_id: 'a', response: 1, wait: true }],
      ['input.respond', { responses: [{ interrupt_id: 'a', respond: 1 }] }],
      ['state.get', { key: ['a'] }],
      ['state.fork', { checkpoint_id: 'a', context: {} }],
      ['state.listCheckpoints', { after: 'a' }],
      ['agent.getTree', { run: 'a' }],
    ] as const) {
      expect(await sendCommand(method, params)).toMatchObject({ type: 'error', error: 'invalid_argument' });
      expect(await sendCommand(method, params)).toMatchObject({ message: expect.stringContaining('Field not known') });
    }
  });
});

describe('an unknown parameter', () => {
  it.each(agentOperations.map(({ operationId, ...rest }) => [operationId, rest] as const))(
    'is ignored and named in the response of %s',
    async (_, { method, path }) => {
      const asked = `${path.replace(/:\w+/g, randomUUID())}?surprise=1&again=`;
      const answer = await server.ask(method, asked, method === 'GET' ? undefined : {});
      expect(answer.headers.get('x-ignored-fields')).toBe('surprise, again');
      await answer.body?.cancel();
    },
  );

  it('is rejected if it is a known option that is not implemented', async () => {
    const { runs } = new Client({ apiUrl: server.url, apiKey: server.owner.adminKey });
    const ids = [randomUUID(), randomUUID()] as const;
    const options = { streamNamespaces: ['child'] } as object;
    await expect(runs.cancel(...ids, false, 'interrupt', { reason: 'taken' } as never)).rejects.toMatchObject({
      status: 400,
    });
    await expect(runs.joinStream(...ids, options).next()).rejects.toMatchObject({ status: 400 });
    await expect(runs.stream(null, 'echo', options as never).next()).rejects.toMatchObject({ status: 400 });
  });

  it('is accepted if those clients send it on their own: the checkpoint of a view', async () => {
    const { runs, threads } = new Client({ apiUrl: server.url, apiKey: server.owner.adminKey });
    const { thread_id: threadId } = await threads.create();
    const { run_id: runId } = await runs.create(threadId, 'steps', { input: { steps: 1 }, streamResumable: true });
    await runs.join(threadId, runId);
    const { checkpoint } = await threads.getState(threadId);
    const options = { lastEventId: '-1', checkpointId: checkpoint.checkpoint_id } as object;
    const events: string[] = [];
    for await (const { event } of runs.joinStream(threadId, runId, options)) events.push(event);
    expect(events).toEqual(['metadata', 'values', 'values']);
  });
});

describe('additional fields of clients', () => {
  it('are accepted in a batch: the field names and the signal of the JavaScript client', async () => {
    const { signal } = new AbortController();
    const payload = { assistantId: 'steps', input: { steps: 1 }, streamSubgraphs: true, signal };
    const [run] = await server.client.runs.createBatch([payload]);
    expect(run).toMatchObject({ kwargs: { subgraphs: true } });
  });
});

describe('a field without effect', () => {
  it('is rejected: threads that clients created are not deleted with a run', async () => {
    const { thread_id: threadId } = await server.client.threads.create();
    const ask = (on_completion: string) =>
      server.ask('POST', `/threads/${threadId}/runs/wait`, { assistant_id: 'steps', input: {}, on_completion });
    const refused = await ask('delete');
    expect([refused.status, await refused.json()]).toMatchObject([
      422,
      { detail: [{ loc: ['body', 'on_completion'] }] },
    ]);
    expect((await ask('keep')).status).toBe(200);
  });

  it('is rejected: values beside a command, whose update is written instead', async () => {
    const update = { values: { log: ['a'] }, command: { update: { log: ['b'] } }, as_node: 'step' };
    const locations = await refusedLocations('POST', '/threads', { supersteps: [{ updates: [update] }] });
    expect(locations).toEqual([['body', 'supersteps', 0, 'updates', 0, 'values']]);
    const metadata = { graph_id: 'steps' };
    const fine = { metadata, supersteps: [{ updates: [{ ...update, values: {} }] }] };
    expect(await (await server.ask('POST', '/threads', fine)).json()).toMatchObject({ values: { log: ['b'] } });
  });

  it('is rejected: a TTL strategy without a duration', async () => {
    const locations = await refusedLocations('POST', '/threads', { ttl: { strategy: 'delete' } });
    expect(locations).toContainEqual(['body', 'ttl', 'ttl']);
  });
});
