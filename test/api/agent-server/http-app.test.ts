import { randomBytes } from 'node:crypto';
import { get, type IncomingMessage, request } from 'node:http';
import { dirname } from 'node:path';
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { createRouteMatcher, listRoutes } from '../../../pipelines/agents/app/app-route.ts';
import { openHttpApp } from '../../../pipelines/agents/app/http-app.ts';
import { parseReference } from '../../../pipelines/agents/graphs/graphs-file.ts';
import { forSuite } from '../../for-suite.ts';
import { until } from '../../infra/until.ts';
import { logger } from '../../silent-logger.ts';
import { type AgentServerUnderTest, buildGraphsFilePath, startAgentServer } from './start-agent-server.ts';

/** `http.app`: a Hono app of a project, in a separate process behind the agent server. */

const limitBytes = 1024 * 1024;
let agent: AgentServerUnderTest;
beforeAll(async () => {
  const config = { agentsMaxBodyBytes: limitBytes, agentsHeartbeatTimeoutMs: 1_500, agentsAppTimeoutMs: 4_000 };
  agent = await startAgentServer({ project: 'app', config });
});
afterAll(() => agent?.close());

const fetched = (path: string, init?: RequestInit) => fetch(`${agent.url}${path}`, init);
const json = async (path: string, init?: RequestInit) => (await fetched(path, init)).json();
const refusal = async (answer: Response) => [answer.status, ((await answer.json()) as { code: string }).code];

describe('an app', () => {
  it('serves its routes without authentication, with the environment of the file', async () => {
    const answer = await fetched('/hello/J%C3%BCrgen?a=1&b=x%20y', { headers: { host: 'ignored' } });
    expect([answer.status, await answer.json()]).toEqual([
      200,
      { text: 'hello Jürgen', query: { a: '1', b: 'x y' }, url: `${agent.url}/hello/J%C3%BCrgen?a=1&b=x%20y` },
    ]);
    expect(answer.headers.get('x-middleware')).toBe('was here');
    expect(answer.headers.get('x-request-id')).toBeTruthy();
    expect((await fetched('/hello/you', { method: 'HEAD' })).status).toBe(200);
  });

  it('receives the headers and address of its client, but no headers that only a trusted proxy may send', async () => {
    const headers = { 'x-own': '1', authorization: 'Bearer t', 'x-runlake-app-user': 'Zm9yZ2Vk', te: 'trailers' };
    const seen = (await json('/headers', { headers })) as Record<string, string>;
    expect(seen).toMatchObject({
      'x-own': '1',
      authorization: 'Bearer t',
      host: new URL(agent.url).host,
      'x-forwarded-host': new URL(agent.url).host,
      'x-forwarded-proto': 'http',
      'x-forwarded-for': '127.0.0.1',
    });
    const forwardedHeaders = await json('/headers', {
      headers: { 'x-forwarded-for': '1.2.3.4', 'x-forwarded-proto': 'https' },
    });
    expect(forwardedHeaders).toMatchObject({ 'x-forwarded-for': '1.2.3.4, 127.0.0.1', 'x-forwarded-proto': 'https' });
    for (const name of ['x-runlake-app-user', 'te']) expect(seen).not.toHaveProperty(name);
    expect(await json('/whoami', { headers })).toBeNull();
  });

  it('sets its response headers', async () => {
    const answer = await fetched('/cookies');
    expect([answer.status, answer.headers.getSetCookie()]).toEqual([204, ['a=1', 'b=2']]);
    expect(answer.headers.get('x-frame-options')).toBe('SAMEORIGIN');
  });

  it('takes precedence for the routes that it names, and otherwise gets requests that the server has no route for', async () => {
    const appResponse = { from: 'the app' };
    expect(await json('/info')).toEqual(appResponse);
    expect(await json('/ok')).toEqual({ ok: true });
    const { thread_id: threadId } = await agent.client.threads.create();
    expect(await agent.client.threads.get(threadId)).toHaveProperty('thread_id', threadId);
    expect(await json('/threads/a/b/c')).toEqual(appResponse);
    expect(await (await fetched('/files/a/b%20c?d')).text()).toBe('/files/a/b c');
    expect(await agent.client.runs.wait(null, 'plain', { input: {} })).toEqual({ text: 'said' });
    for (const path of ['/nowhere', '/api/v1/nowhere', '/', '/own-route']) {
      const answer = await fetched(path, { method: 'POST' });
      expect([answer.status, await answer.text()]).toEqual([404, 'the app has none either']);
    }
  });

  it.each([
    ['/info', true],
    ['/inf%6F', true],
    ['http://localhost/info', true],
    // Runlake ignores such slashes in its own paths; Hono does not.
    ['//info', false],
    ['/info/', false],
    ['/i%6efo/', false],
    ['http://localhost//info/?a=1', false],
  ])('takes precedence however the path is written: %s', async (path, isRoute) => {
    const { hostname, port } = new URL(agent.url);
    const answer = await new Promise<IncomingMessage>((resolve) => get({ hostname, port, path }, resolve));
    expect(await text(answer)).toBe(isRoute ? '{"from":"the app"}' : 'the app has none either');
  });

  it('streams bodies in both directions at once', async () => {
    const { port } = new URL(agent.url);
    const sent = request({ port, path: '/echo', method: 'POST', headers: { 'content-type': 'text/plain' } });
    const answered = new Promise<IncomingMessage>((resolve) => sent.once('response', resolve));
    sent.write('first');
    const answer = await answered;
    const chunks = answer[Symbol.asyncIterator]();
    const next = async () => String((await chunks.next()).value);
    expect(await next()).toBe('first');
    sent.write('second');
    expect(await next()).toBe('second');
    sent.end();
    expect((await chunks.next()).done).toBe(true);
  });

  it('returns bytes unchanged', async () => {
    const bytes = randomBytes(limitBytes - 1);
    const answer = await fetched('/echo', { method: 'POST', body: bytes });
    expect(Buffer.from(await answer.arrayBuffer()).equals(bytes)).toBe(true);
  });

  it('writes no faster than its client reads', async () => {
    const answer = await new Promise<IncomingMessage>((resolve) => get(`${agent.url}/large/200`, resolve));
    answer.pause();
    const before = process.memoryUsage.rss();
    for (let heartbeat = 0; heartbeat < 20; heartbeat += 1) await fetched('/ok');
    expect(process.memoryUsage.rss() - before).toBeLessThan(100 * 1024 * 1024);
    let bytes = 0;
    for await (const chunk of answer) bytes += (chunk as Buffer).length;
    expect(bytes).toBe(200 * 1024 * 1024);
  });

  it('is notified when its client disconnects, before and during the response', async () => {
    const aborted = () => json('/aborted') as Promise<number>;
    for (const path of ['/never', '/ticks']) {
      const before = await aborted();
      const stop = new AbortController();
      const requests = fetched(path, { signal: stop.signal });
      if (path === '/never') setTimeout(() => stop.abort(), 300);
      else {
        const reader = (await requests).body!.getReader();
        expect(Buffer.from((await reader.read()).value!).toString()).toContain('event: tick');
        stop.abort();
      }
      await requests.catch(() => undefined);
      await until('the app is notified', async () => (await aborted()) > before);
    }
  });
});

describe('limits', () => {
  it.each([true, false])('reject a body that is too large, with a length: %s', async (hasLength) => {
    const body = hasLength
      ? Buffer.alloc(limitBytes + 1)
      : new ReadableStream({
          pull: (controller) => controller.enqueue(new Uint8Array(256 * 1024)),
        });
    const answer = await fetched('/size', { method: 'PUT', body, duplex: 'half' } as RequestInit).catch(
      () => undefined,
    );
    // If the body has no length, the connection may close before the client reads the response.
    if (answer) expect(await refusal(answer)).toEqual([413, 'BODY_TOO_LARGE']);
    else expect(hasLength).toBe(false);
    expect(await json('/size', { method: 'PUT', body: Buffer.alloc(limitBytes) })).toEqual({ bytes: limitBytes });
  });

  it('end a response that takes too long', async () => {
    expect(await refusal(await fetched('/never'))).toEqual([504, 'APP_TIMEOUT']);
  });

  it('reject WebSockets', async () => {
    const headers = {
      connection: 'upgrade',
      upgrade: 'websocket',
      'sec-websocket-version': '13',
      'sec-websocket-key': randomBytes(16).toString('base64'),
    };
    const status = await new Promise((resolve) => {
      const requests = get(`${agent.url}/hello/x`, { headers }, (answer) => resolve(answer.statusCode));
      requests.once('error', resolve);
    });
    expect(status).toBe(501);
  });
});

describe('an app that fails', () => {
  const pid = async () => Number(await (await fetched('/pid')).text());
  const waitForRestart = () => until('the app restarts', async () => (await fetched('/pid')).status === 200);
  const breakApp = (how: string) => fetched(`/break/${how}`, { method: 'POST' });

  it('responds with the error of its framework and continues', async () => {
    const before = await pid();
    const answer = await breakApp('throw');
    expect([answer.status, await answer.text()]).toEqual([500, 'Internal Server Error']);
    expect(await pid()).toBe(before);
  });

  it.each(['exit', 'later', 'loop'])('by %s fails its requests, and another process is started', async (how) => {
    await waitForRestart();
    const before = await pid();
    const ids = agent.client.threads.create();
    expect(await refusal(await breakApp(how))).toEqual([502, 'APP_FAILED']);
    expect((await ids).thread_id).toBeTruthy();
    const interimResponse = await fetched('/pid');
    expect([200, 502, 503]).toContain(interimResponse.status);
    await waitForRestart();
    expect(await pid()).not.toBe(before);
  });

  it('during a response aborts it', async () => {
    await waitForRestart();
    const answer = await breakApp('midway');
    expect(answer.status).toBe(200);
    await expect(answer.text()).rejects.toThrow();
    await waitForRestart();
  });
});

describe('with enable_custom_route_auth', () => {
  const guardedServer = forSuite(() => startAgentServer({ project: 'guarded' }));

  it('admits only users that the project authenticates, and passes them to the app', async () => {
    const ask = (authorization: string) => fetch(`${guardedServer.url}/whoami`, { headers: { authorization } });
    expect(await refusal(await ask('Bearer wrong-anna'))).toEqual([401, 'AUTH_REJECTED']);
    expect(await (await ask('Bearer secret-anna')).json()).toEqual({
      user: { identity: 'anna', display_name: 'ANNA', is_authenticated: true, permissions: ['is:anna'], plan: 'free' },
      scopes: ['is:anna'],
    });
    expect(await refusal(await fetch(`${guardedServer.url}/nowhere`))).toEqual([401, 'AUTH_REJECTED']);
  });
});

describe('a file whose app', () => {
  it.each([
    ['is not there', './none.ts:app', 'none.ts'],
    ['is not exported', './app.ts:other', "'other'"],
    ['cannot fetch', './app.ts:nothing', 'has no fetch(request)'],
    ['ends while it loads', './ending.js:app', 'ended with code 7'],
  ])('%s keeps the server from starting', async (_what, app, reason) => {
    const opening = open(app);
    await expect(opening).rejects.toMatchObject({ code: 'GRAPHS_FILE_INVALID' });
    await expect(opening).rejects.toThrow('http.app');
    await expect(opening).rejects.toThrow(reason);
  });

  it('is not a Hono app gets requests that the server has no route for', async () => {
    const app = await open('./app.ts:bare');
    onTestFinished(() => app.close());
    expect(app.names('GET', '/info')).toBe(false);
    const { signal } = new AbortController();
    const { status, body } = await app.send({
      method: 'GET',
      target: '/x?y',
      headers: ['host', 'a'],
      body: null,
      signal,
    });
    expect([status, await text(body)]).toEqual([203, 'bare /x']);
  });
});

async function open(app: string) {
  const path = buildGraphsFilePath('app');
  const folder = dirname(path);
  const file = { path, folder, env: {}, app: parseReference(folder, app) };
  const environment = { PATH: process.env.PATH ?? '' };
  return openHttpApp({
    file,
    environment,
    heartbeatTimeoutMs: 5_000,
    timeoutMs: 5_000,
    logger,
  });
}

it('createRouteMatcher returns the routes that an app names', () => {
  const handler = () => undefined;
  const routes = [
    ...['/a', '/a/:b', '/c/*', '/d/:e{[0-9]+}', '/f/:g?'].map((path) => ({ method: 'GET', path, handler })),
    { method: 'ALL', path: '/all', handler },
    { method: 'POST', path: '/ü', handler },
    7,
  ];
  const names = createRouteMatcher(listRoutes({ routes }));
  const requests = [
    'GET /a',
    'HEAD /a',
    'GET /a/x',
    'POST /%C3%BC',
    'POST /a',
    'GET /a/',
    'GET //a',
    'GET https://host/a',
    'GET /a/x/y',
    'GET /c/x',
    'GET /d/1',
  ];
  const named = requests.filter((one) => names(...(one.split(' ') as [string, string])));
  expect(named).toEqual(['GET /a', 'HEAD /a', 'GET /a/x', 'POST /%C3%BC', 'GET /a/', 'GET //a', 'GET https://host/a']);
  for (const other of ['GET /all', 'GET /f', 'GET /%', 'GET /'])
    expect(names(...(other.split(' ') as [string, string]))).toBe(false);
  expect(listRoutes({ fetch: handler })).toEqual([]);
});
