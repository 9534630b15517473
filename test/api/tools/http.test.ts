import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { SUPPORTED_PROTOCOL_VERSIONS } from '@modelcontextprotocol/sdk/types.js';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { hashKey } from '../../../pipelines/tenants/key-format.ts';
import { addKey, addOrganization } from '../start-api.ts';
import { rootRun, sendRuns } from './send-runs.ts';
import { startToolServer, type ToolsUnderTest } from './start-tools.ts';

/** Another installation, which knows one key. For others it answers as proxies do. */
const other = createServer((request, response) => {
  const key = request.headers['x-api-key'];
  if (key === 'web-page') return void response.end('<html>');
  const [, status] = /^status-(\d+)$/.exec(String(key)) ?? [];
  if (status !== undefined) return void response.writeHead(Number(status), { location: '/login' }).end('<html>');
  const isKnown = key === 'remote-key';
  response.writeHead(isKnown ? 200 : 401, { 'content-type': 'application/json' });
  response.end(
    JSON.stringify(isKnown ? [{ id: 'p-1', name: `at ${request.url?.split('?')[0]}` }] : { detail: 'Invalid token' }),
  );
});

let server: ToolsUnderTest;
let endpoint: string;
beforeAll(async () => {
  other.listen(0, '127.0.0.1');
  await once(other, 'listening');
  endpoint = `http://127.0.0.1:${(other.address() as AddressInfo).port}`;
  const toolsEndpoints = `${endpoint}/api/v1, http://localhost:${(other.address() as AddressInfo).port}`;
  server = await startToolServer({ config: { toolsEndpoints, allowPrivateEndpoints: true } });
});
afterAll(async () => {
  other.close();
  await server.close();
});

const accept = 'application/json, text/event-stream';
const list = { jsonrpc: '2.0', id: 1, method: 'tools/list' };
const callProjects = (values: unknown) => ({
  ...list,
  method: 'tools/call',
  params: { name: 'list_projects', arguments: values },
});
const initialize = {
  jsonrpc: '2.0',
  id: 0,
  method: 'initialize',
  params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'test', version: '1' } },
};

/** A body that is a text is sent as it is. */
function send(
  method: string,
  body: object | string | undefined,
  headers: Record<string, string> = {},
): Promise<Response> {
  return fetch(`${server.url}/mcp`, {
    method,
    headers: { accept, ...(body && { 'content-type': 'application/json' }), ...headers },
    ...(body && { body: typeof body === 'string' ? body : JSON.stringify(body) }),
  });
}

const withKey = (more: Record<string, string> = {}) => ({
  'langsmith-api-key': server.owner.workspaceKeys[0],
  ...more,
});

describe('the key', () => {
  it('is required before anything is listed', async () => {
    for (const body of [list, initialize, { jsonrpc: '2.0', id: 1, method: 'ping' }]) {
      const missing = await send('POST', body);
      expect([missing.status, await missing.json()]).toMatchObject([
        401,
        { error: 'Missing LANGSMITH-API-KEY header' },
      ]);
      const wrong = await send('POST', body, { 'langsmith-api-key': 'rlk_wrong' });
      expect([wrong.status, await wrong.json()]).toMatchObject([401, { error: 'The API key is not valid.' }]);
    }
    expect((await send('GET', undefined)).status).toBe(401);
    expect((await send('DELETE', undefined)).status).toBe(401);
  });

  it.each(['langsmith-api-key', 'runlake-api-key', 'x-api-key', 'authorization'])('is accepted as %s', async (name) => {
    const [key] = server.owner.workspaceKeys;
    const answer = await send('POST', list, { [name]: name === 'authorization' ? `Bearer ${key}` : key });
    expect([answer.status, (await answer.json()) as object]).toMatchObject([
      200,
      { result: { tools: expect.any(Array) } },
    ]);
  });

  it('of several workspaces needs the workspace', async () => {
    const { owner, api } = server;
    const key = await addKey({ database: api.database, organizationId: owner.id, userId: owner.userId });
    const call = { ...list, method: 'tools/call', params: { name: 'list_projects', arguments: {} } };
    const text = async (headers: Record<string, string>) => {
      const answer = (await (await send('POST', call, { 'langsmith-api-key': key, ...headers })).json()) as {
        result: { content: { text: string }[] };
      };
      return JSON.parse(answer.result.content[0]?.text ?? '');
    };
    expect(await text({})).toEqual({
      error: expect.stringMatching(
        /several workspaces.*header LANGSMITH-WORKSPACE-ID.*variable LANGSMITH_WORKSPACE_ID/,
      ),
    });
    for (const name of ['langsmith-workspace-id', 'runlake-workspace-id'])
      expect(await text({ [name]: owner.workspaceIds[1] })).toEqual({ projects: [] });
    const foreign = await addOrganization(api.database, 'foreign');
    const answer = await send('POST', list, {
      'langsmith-api-key': key,
      'langsmith-workspace-id': foreign.workspaceIds[0],
    });
    expect(answer.status).toBe(403);
  });

  it('ends sessions and streams when it is revoked', async () => {
    const { owner, api } = server;
    const key = await addKey({ database: api.database, organizationId: owner.id, userId: owner.userId });
    const opened = await send('POST', initialize, { 'langsmith-api-key': key });
    const sessionId = opened.headers.get('mcp-session-id') ?? '';
    await opened.text();
    const stream = await send('GET', undefined, {
      'langsmith-api-key': key,
      'mcp-session-id': sessionId,
      accept: 'text/event-stream',
    });
    expect(stream.status).toBe(200);
    await api.database.execute('UPDATE api_keys SET revoked_at = now() WHERE hash = $1', [hashKey(key)]);
    await stream.text().catch(() => undefined);
    expect((await send('POST', list, { 'langsmith-api-key': key, 'mcp-session-id': sessionId })).status).toBe(401);
  }, 20_000);
});

describe('the endpoint', () => {
  it('may be that of the installation, in each form', async () => {
    for (const name of ['http://main.example:1984', 'http://main.example:1984/api/v1/', 'http://main.example:1984/api'])
      expect((await send('POST', list, withKey({ 'langsmith-endpoint': name }))).status).toBe(200);
  });

  it('may have any name of the loopback interface', async () => {
    const local = await startToolServer({ config: { publicUrl: 'http://127.0.0.1:1984' } });
    const headers = { accept, 'content-type': 'application/json', 'x-api-key': local.owner.workspaceKeys[0] };
    const ask = async (name: string) =>
      await fetch(`${local.url}/mcp`, {
        method: 'POST',
        headers: { ...headers, 'langsmith-endpoint': name },
        body: JSON.stringify(list),
      });
    for (const name of ['http://localhost:1984', 'http://[::1]:1984/api', 'http://LOCALHOST:1984/'])
      expect((await ask(name)).status, name).toBe(200);
    for (const name of ['http://localhost:1985', 'https://localhost:1984', 'http://localhost.example:1984'])
      expect((await ask(name)).status, name).toBe(403);
    await local.close();
  });

  it('is refused unless it is listed', async () => {
    for (const name of ['http://169.254.169.254', 'https://elsewhere.example', 'nonsense']) {
      const answer = await send('POST', list, withKey({ 'langsmith-endpoint': name }));
      expect([answer.status, await answer.json()]).toMatchObject([403, { code: 'TOOLS_ENDPOINT_FORBIDDEN' }]);
    }
  });

  it('that is listed is asked with the key of the caller', async () => {
    const call = { ...list, method: 'tools/call', params: { name: 'list_projects', arguments: {} } };
    const headers = { 'langsmith-endpoint': endpoint, 'langsmith-api-key': 'remote-key' };
    const answer = (await (await send('POST', call, headers)).json()) as { result: { structuredContent: object } };
    expect(answer.result.structuredContent).toEqual({ projects: [{ name: 'at /api/v1/sessions', project_id: 'p-1' }] });
    expect((await send('POST', list, { ...headers, 'langsmith-api-key': 'unknown' })).status).toBe(401);
    expect((await send('POST', list, { ...headers, ...withKey() })).status).toBe(401);
  });

  it.each([302, 404, 429, 503])('that answers the check of a key with %i is not available', async (status) => {
    const answer = await send('POST', list, {
      'langsmith-endpoint': endpoint,
      'langsmith-api-key': `status-${status}`,
    });
    expect([answer.status, await answer.json()]).toMatchObject([
      503,
      { error: expect.stringContaining(`it answers ${status}`) },
    ]);
  });

  it('that answers with a web page makes calls fail, with the reason', async () => {
    const headers = { 'langsmith-endpoint': endpoint, 'langsmith-api-key': 'web-page' };
    const call = { ...list, method: 'tools/call', params: { name: 'list_projects', arguments: {} } };
    const { result } = (await (await send('POST', call, headers)).json()) as { result: object };
    expect(result).toMatchObject({
      isError: true,
      structuredContent: { error: expect.stringMatching(/it does not answer with JSON\. Check LANGSMITH_ENDPOINT/) },
    });
  });

  it('at a private address is refused unless the operator allows those', async () => {
    const guarded = await startToolServer({ config: { toolsEndpoints: endpoint } });
    const headers = {
      accept,
      'content-type': 'application/json',
      'langsmith-endpoint': endpoint,
      'langsmith-api-key': 'remote-key',
    };
    const answer = await fetch(`${guarded.url}/mcp`, { method: 'POST', headers, body: JSON.stringify(list) });
    expect([answer.status, await answer.json()]).toMatchObject([
      503,
      { error: expect.stringContaining('it resolves to') },
    ]);
    await guarded.close();
  });
});

describe('requests without a session', () => {
  it('get JSON', async () => {
    const answer = await send('POST', list, withKey());
    expect(answer.headers.get('content-type')).toContain('application/json');
    expect(answer.headers.has('mcp-session-id')).toBe(false);
    expect(((await answer.json()) as { result: { tools: object[] } }).result.tools).toHaveLength(19);
  });

  it.each(SUPPORTED_PROTOCOL_VERSIONS)('may use version %s', async (version) => {
    const answer = await send('POST', list, withKey({ 'mcp-protocol-version': version }));
    expect(answer.status).toBe(200);
  });

  it.each<[string, object | undefined, string, Record<string, string>, number]>([
    ['an unknown version', list, 'POST', { 'mcp-protocol-version': '1999-01-01' }, 400],
    ['no acceptable type', list, 'POST', { accept: 'application/json' }, 406],
    ['no message', { hello: 'world' }, 'POST', {}, 400],
    ['GET', undefined, 'GET', {}, 405],
    ['DELETE', undefined, 'DELETE', {}, 405],
    ['PUT', undefined, 'PUT', {}, 405],
    ['an unknown session', list, 'POST', { 'mcp-session-id': 'none' }, 404],
    ['a large body', { ...list, more: 'x'.repeat(1_100_000) }, 'POST', {}, 413],
  ])('%s: an error', async (_, body, method, headers, status) => {
    const answer = await send(method, body, withKey(headers));
    expect(answer.status).toBe(status);
    if (status === 405) expect(answer.headers.get('allow')).toContain('POST');
    await answer.text();
  });

  it.each<[string, object | string, number, number, RegExp]>([
    ['that is not JSON', '{"jsonrpc": ', 400, -32700, /Invalid JSON in body/],
    ['that is an empty list', [], 400, -32600, /empty/],
    ['with a list as arguments', callProjects([]), 200, -32602, /params\.arguments: .*record/],
    ['without the name of a tool', { ...list, method: 'tools/call', params: {} }, 200, -32602, /params\.name: /],
    ['without the URI of a resource', { ...list, method: 'resources/read' }, 200, -32602, /params: /],
    ['of an unknown method', { ...list, method: 'animals/list' }, 200, -32601, /Method not found/],
  ])('%s: a protocol error', async (_, body, status, code, message) => {
    const answer = await send('POST', body, withKey());
    expect([answer.status, await answer.json()]).toMatchObject([
      status,
      { jsonrpc: '2.0', error: { code, message: expect.stringMatching(message) } },
    ]);
  });

  it('may have null for parameters that they do not use', async () => {
    for (const body of [callProjects(null), { ...list, params: { cursor: null } }]) {
      const answer = await send('POST', body, withKey());
      expect([answer.status, await answer.json()]).toMatchObject([200, { result: {} }]);
    }
  });

  it('/health and /ready need no key, /docs describes the server', async () => {
    const health = await fetch(`${server.url}/health`);
    expect([health.status, await health.text()]).toEqual([200, 'Runlake tool server is running']);
    expect((await fetch(`${server.url}/ready`)).status).toBe(200);
    expect((await fetch(`${server.url}/openapi.json`)).status).toBe(200);
    expect((await fetch(`${server.url}/.well-known/oauth-authorization-server`)).status).toBe(404);
  });
});

/** An event of a stream: its id and its message. */
interface Event {
  readonly id: string;
  readonly data: string;
}

async function readEvents(response: Response): Promise<Event[]> {
  const text = await response.text();
  return [...text.matchAll(/^id: (.*)\n(?:retry: .*\n)?data: (.*)$/gm)].map(([, id = '', data = '']) => ({ id, data }));
}

describe('a session', () => {
  const open = async (key = server.owner.workspaceKeys[0]) => {
    const answer = await send('POST', initialize, { 'langsmith-api-key': key });
    const sessionId = answer.headers.get('mcp-session-id') ?? '';
    await answer.text();
    return sessionId;
  };

  it('has streams that can be resumed', async () => {
    const session = { 'mcp-session-id': await open(), 'mcp-protocol-version': '2025-11-25' };
    const answer = await send('POST', [list, { ...list, id: 2 }], withKey(session));
    expect(answer.headers.get('content-type')).toBe('text/event-stream');
    const events = await readEvents(answer);
    expect(events.map(({ data }) => data && JSON.parse(data).result.tools.length)).toEqual(['', 19, 19]);
    const [priming, , last] = events as [Event, Event, Event];
    const resumed = await send('GET', undefined, withKey({ ...session, 'last-event-id': priming.id }));
    expect([resumed.status, resumed.headers.get('content-type')]).toEqual([200, 'text/event-stream']);
    const reader = resumed.body?.pipeThrough(new TextDecoderStream()).getReader();
    let text = '';
    while (!text.includes('"id":2')) text += (await reader?.read())?.value ?? '';
    expect(text).toContain(`id: ${last.id}`);
    await reader?.cancel();
    const unknown = await send('GET', undefined, withKey({ ...session, 'last-event-id': 'unknown' }));
    expect(unknown.status).toBe(400);
  });

  it('answers a quick request with JSON', async () => {
    const session = { 'mcp-session-id': await open(), 'mcp-protocol-version': '2025-11-25' };
    // On a busy machine a response may take longer, and be a stream.
    const text = await vi.waitUntil(async () => {
      const answer = await send('POST', list, withKey(session));
      const sent = await answer.text();
      return answer.headers.get('content-type') === 'application/json' && sent;
    }, 10_000);
    expect((JSON.parse(text) as { result: { tools: unknown[] } }).result.tools).toHaveLength(19);
  });

  it('refuses a request of another content type before it is executed', async () => {
    const session = { 'mcp-session-id': await open(), 'content-type': 'application/vnd.api+json' };
    const answer = await send('POST', list, withKey(session));
    expect([answer.status, await answer.text()]).toMatchObject([415, expect.stringContaining('application/json')]);
  });

  it('belongs to its key, and ends when it is deleted', async () => {
    const sessionId = await open();
    const foreign = { 'langsmith-api-key': server.owner.workspaceKeys[1], 'mcp-session-id': sessionId };
    for (const method of ['GET', 'DELETE']) expect((await send(method, undefined, foreign)).status).toBe(404);
    expect((await send('POST', list, foreign)).status).toBe(404);
    const own = withKey({ 'mcp-session-id': sessionId });
    expect((await send('DELETE', undefined, own)).status).toBe(200);
    const gone = await send('POST', list, own);
    expect([gone.status, await gone.json()]).toMatchObject([404, { error: { code: -32001 } }]);
  });

  it('ends when its key has 100 newer ones', async () => {
    const { owner, api } = server;
    const key = await addKey({ database: api.database, organizationId: owner.id, userId: owner.userId });
    const first = await open(key);
    for (let count = 0; count < 100; count += 1) await open(key);
    expect((await send('POST', list, { 'langsmith-api-key': key, 'mcp-session-id': first })).status).toBe(404);
  });
});

it('requests count for the rate limit of their key', async () => {
  const limited = await startToolServer({ config: { rateLimitPerKey: 3 } });
  const headers = { accept, 'content-type': 'application/json', 'x-api-key': limited.owner.workspaceKeys[0] };
  const answers = await Promise.all(
    Array.from({ length: 12 }, () =>
      fetch(`${limited.url}/mcp`, { method: 'POST', headers, body: JSON.stringify(list) }),
    ),
  );
  expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200, 429]));
  await limited.close();
});

describe('a tool server without a main API in its process', () => {
  it('answers calls, and accepts the origins of RUNLAKE_TOOLS_CORS_ORIGINS', async () => {
    const alone = await startToolServer({ isAlone: true, config: { toolsCorsOrigins: 'https://app.example' } });
    await sendRuns(alone, [rootRun('alone')]);
    await alone.api.settled();
    expect(await alone.call('fetch_runs', { project_name: 'alone', limit: 1 })).toMatchObject({
      runs: [{ inputs: { question: 'why' } }],
    });
    const foreign = await addOrganization(alone.api.database, 'others');
    expect((await alone.call('list_projects', {}, foreign.adminKey)).projects).toEqual([]);
    const ask = (origin: string) =>
      fetch(`${alone.url}/mcp`, {
        method: 'POST',
        headers: { accept, origin, 'content-type': 'application/json', 'x-api-key': alone.owner.workspaceKeys[0] },
        body: JSON.stringify(list),
      });
    const listed = await ask('https://app.example');
    expect([listed.status, listed.headers.get('access-control-allow-origin')]).toEqual([200, 'https://app.example']);
    expect((await ask('http://localhost:6274')).status).toBe(403);
    await alone.close();
  });
});

describe('pages of other origins', () => {
  it('are refused, those of this machine are not', async () => {
    for (const origin of ['https://evil.example', 'null', 'http://localhost.evil.example']) {
      const answer = await send('POST', list, withKey({ origin }));
      expect([answer.status, await answer.json()]).toMatchObject([403, { code: 'ORIGIN_NOT_ALLOWED' }]);
    }
    const local = await send('POST', list, withKey({ origin: 'http://localhost:6274' }));
    expect([local.status, local.headers.get('access-control-allow-origin')]).toEqual([200, 'http://localhost:6274']);
    const preflight = await fetch(`${server.url}/mcp`, {
      method: 'OPTIONS',
      headers: { origin: 'http://127.0.0.1:6274', 'access-control-request-method': 'POST' },
    });
    expect(preflight.status).toBe(204);
    expect(preflight.headers.get('access-control-allow-headers')).toContain('langsmith-api-key');
    expect(preflight.headers.get('access-control-expose-headers')).toContain('mcp-session-id');
  });
});
