import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import type { FastifyInstance } from 'fastify';
import { Type } from 'typebox';
import { afterEach, describe, expect, it } from 'vitest';
import { buildServer } from '../../../api/server/build-server.ts';
import { defineOperation, listByTag, RawResponse } from '../../../api/server/operation.ts';
import type { Services } from '../../../api/server/services.ts';
import { loadConfig } from '../../../infra/config/load.ts';
import type { Config } from '../../../infra/config/settings.ts';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { logger } from '../../silent-logger.ts';

const open = { public: true, tenantScope: 'none' } as const;
const base = { summary: 'test', access: open };
const JsonValue = Type.Unsafe<unknown>({});

/** Releases the requests to `/wait`, which stay in flight until this is called. */
let releaseWaitingRequests: () => void = () => undefined;
let waiting = 0;

const toys = [
  defineOperation({
    ...base,
    operationId: 'echo',
    method: 'POST',
    path: '/echo/:name',
    aliases: ['/old-echo/:name'],
    unsupported: { query: ['filter', 'facets'], body: ['later', 'deep'], flags: ['facets', 'deep'] },
    schema: {
      params: Type.Object({ name: Type.String() }),
      query: Type.Object({ limit: Type.Integer({ default: 7, maximum: 10 }) }),
      body: Type.Object({ count: Type.Optional(Type.Integer()) }),
      response: { 200: JsonValue },
    },
    handler: async ({ params, query, body }) => ({ params, query, body }),
  }),
  defineOperation({
    ...base,
    operationId: 'ingest',
    method: 'POST',
    path: '/ingest',
    errorStyle: 'error',
    rawBody: { contentTypes: ['application/json'], description: 'Anything.' },
    schema: { response: { 202: Type.Object({ bytes: Type.Integer() }) } },
    handler: async ({ request }) => {
      const body = await text(request.raw);
      if (body === 'busy') throw runlakeError('OVERLOADED', { what: 'bytes' }, { retryAfterSeconds: 3 });
      return { bytes: body.length };
    },
  }),
  defineOperation({
    ...base,
    operationId: 'broken',
    method: 'GET',
    path: '/broken',
    schema: { response: { 200: JsonValue } },
    handler: async () => {
      throw new TypeError('password=hunter2');
    },
  }),
  defineOperation({
    ...base,
    operationId: 'lacking',
    method: 'GET',
    path: '/lacking',
    schema: { response: { 200: Type.Object({ there: Type.String() }) } },
    handler: async () => ({}) as { there: string },
  }),
  defineOperation({
    ...base,
    operationId: 'csv',
    method: 'GET',
    path: '/csv',
    schema: { response: { 200: Type.String() }, produces: 'text/csv; charset=utf-8' },
    handler: async () => new RawResponse({ headers: { 'content-disposition': 'attachment' }, body: Buffer.from('a') }),
  }),
  defineOperation({
    ...base,
    operationId: 'wait',
    method: 'GET',
    path: '/wait',
    schema: { response: { 200: Type.Object({ done: Type.Boolean() }) } },
    handler: async () => {
      waiting++;
      await new Promise<void>((resolve) => {
        releaseWaitingRequests = resolve;
      });
      return { done: true };
    },
  }),
  defineOperation({
    ...base,
    operationId: 'alive',
    method: 'GET',
    path: '/alive',
    mount: 'root',
    servesWhileDraining: true,
    schema: { response: { 200: Type.Object({ ok: Type.Boolean() }) } },
    handler: async () => ({ ok: true }),
  }),
];

const started: FastifyInstance[] = [];
afterEach(async () => {
  releaseWaitingRequests();
  await Promise.all(started.splice(0).map((server) => server.close()));
  waiting = 0;
});

async function start(config: Partial<Config> = {}): Promise<FastifyInstance> {
  const server = await buildServer({
    config: { ...loadConfig({}).config, ...config },
    services: {} as Services,
    logger,
    operations: listByTag({ test: toys }),
  });
  started.push(server);
  return server;
}

async function listen(config: Partial<Config> = {}): Promise<{ server: FastifyInstance; url: string; port: number }> {
  const server = await start(config);
  const url = await server.listen({ port: 0, host: '127.0.0.1' });
  return { server, url, port: Number(new URL(url).port) };
}

/** Returns what the server sends in response to these bytes before it closes the connection. */
async function raw(port: number, bytes: string): Promise<string> {
  const socket = connect({ port, host: '127.0.0.1' });
  // The server may close the connection before it has read everything.
  socket.on('error', () => undefined);
  socket.write(bytes);
  return text(socket);
}

const json = { 'content-type': 'application/json' };

describe('routes', () => {
  it.each([
    '/echo/x',
    '/echo/x/',
    '/api/echo/x',
    '/api/v1/echo/x',
    '/api/v1/echo/x/',
    '/api/v1/api/v1/echo/x',
    '/old-echo/x',
    '/api/v1/old-echo/x/',
  ])('%s', async (url) => {
    const server = await start();
    const answer = await server.inject({ method: 'POST', url, headers: json, payload: '{"count":1,"more":"removed"}' });
    expect([answer.statusCode, answer.headers['x-ignored-fields']]).toEqual([200, 'more']);
    expect(answer.json()).toEqual({ params: { name: 'x' }, query: { limit: 7 }, body: { count: 1 } });
    expect(answer.headers['x-request-id']).toMatch(/^[0-9a-f-]{36}$/);
  });

  it.each([
    ['GET', '/alive', 200],
    ['GET', '/alive/', 200],
    ['HEAD', '/alive', 200],
    ['GET', '/api/v1/alive', 404],
    ['GET', '/nowhere', 404],
    ['GET', '/echo/x', 405],
    ['GET', '/old-echo/x', 405],
    ['OPTIONS', '/wait', 405],
    ['DELETE', '/api/v1/ingest', 405],
    ['QUERY', '/echo/x', 405],
    ['QUERY', '/nowhere', 404],
    ['TRACE', '/alive', 405],
  ] as const)('%s %s: %i', async (method, url, status) => {
    const server = await start();
    const answer = await server.inject({ method, url });
    expect(answer.statusCode).toBe(status);
    if (status === 405) expect(answer.headers.allow).toMatch(/^(GET, HEAD|POST)$/);
  });

  it('names the requested path without its query', async () => {
    const server = await start();
    const answer = await server.inject('/api/nowhere?api_key=secret');
    expect(answer.json()).toMatchObject({ detail: 'There is no GET /api/nowhere.', code: 'ROUTE_NOT_FOUND' });
  });
});

describe('bodies and parameters', () => {
  it.each([
    ['/echo/x', '{"count":"1"}', 422, { detail: [{ loc: ['body', 'count'] }] }],
    ['/echo/x', '{"count":1', 422, { code: 'INVALID_JSON' }],
    ['/echo/x', '', 422, { detail: [{ loc: ['body'] }] }],
    ['/echo/x?limit=11', '{}', 422, { detail: [{ loc: ['query', 'limit'] }] }],
    ['/echo/x?limit=1&limit=2', '{}', 422, { detail: [{ loc: ['query', 'limit'] }] }],
    ['/echo/x?limit=&filter=', '{}', 200, { query: { limit: 7 } }],
    ['/echo/x?filter=eq(a,1)', '{}', 400, { code: 'PARAMETER_NOT_SUPPORTED', detail: /'filter'/ }],
    ['/echo/x', '{"later":{"a":1}}', 400, { code: 'PARAMETER_NOT_SUPPORTED', detail: /'later'/ }],
    ['/echo/x', '{"later":null}', 200, {}],
    ['/echo/x', '{"later":[]}', 200, {}],
    ...['false', '0', 'no', 'OFF'].flatMap((word): [string, string, number, object][] => [
      [`/echo/x?filter=${word}`, '{}', 400, { code: 'PARAMETER_NOT_SUPPORTED', detail: /'filter'/ }],
      [`/echo/x?facets=${word}`, '{}', 200, {}],
      ['/echo/x', `{"later":"${word}"}`, 400, { code: 'PARAMETER_NOT_SUPPORTED', detail: /'later'/ }],
      ['/echo/x', `{"deep":"${word}"}`, 200, {}],
    ]),
    ['/echo/x', '{"deep":false}', 200, {}],
    ['/echo/x', '{"deep":true}', 400, { code: 'PARAMETER_NOT_SUPPORTED', detail: /'deep'/ }],
    ['/echo/x', '{"later":false}', 400, { code: 'PARAMETER_NOT_SUPPORTED', detail: /'later'/ }],
    ['/echo/x?facets=on', '{}', 400, { code: 'PARAMETER_NOT_SUPPORTED', detail: /'facets'/ }],
    ['/echo/%zz', '{}', 400, { code: 'BAD_REQUEST' }],
    ['/echo/x?limit=%zz', '{}', 400, { code: 'BAD_REQUEST' }],
    [`/echo/${'y'.repeat(5_000)}`, '{}', 200, {}],
  ])('%s %s: %i', async (url, payload, status, body) => {
    const server = await start();
    const answer = await server.inject({ method: 'POST', url, headers: json, payload });
    expect([answer.statusCode, answer.body.slice(0, 300)]).toEqual([status, expect.anything()]);
    for (const [key, value] of Object.entries(body)) {
      if (value instanceof RegExp) expect(answer.json()[key]).toMatch(value);
      else expect(answer.json()).toMatchObject({ [key]: value });
    }
  });

  it('accepts only JSON without content encoding', async () => {
    const server = await start();
    const send = (headers: Record<string, string>) =>
      server.inject({ method: 'POST', url: '/echo/x', headers, payload: '{}' });
    expect((await send({ 'content-type': 'text/plain' })).statusCode).toBe(415);
    expect((await send({ 'content-type': 'nonsense' })).statusCode).toBe(400);
    expect((await send({ ...json, 'content-encoding': 'br' })).json()).toMatchObject({
      code: 'UNSUPPORTED_ENCODING',
      remedy: 'Send the body plain.',
    });
    expect((await send({ 'content-type': 'application/merge-patch+json; charset=utf-8' })).statusCode).toBe(200);
  });

  it('rejects a body over the limit', async () => {
    const server = await start({ maxJsonBodyBytes: 1_024 });
    const payload = JSON.stringify({ text: 'x'.repeat(2_000) });
    const answer = await server.inject({ method: 'POST', url: '/echo/x', headers: json, payload });
    expect(answer.statusCode).toBe(413);
    expect(answer.json().detail).toContain('1024 bytes (the limit of requests without runs or feedback)');
  });

  it('passes a raw body through unchanged, with any content type and without one', async () => {
    const { url } = await listen({ maxJsonBodyBytes: 1_024 });
    for (const headers of [json, { 'content-type': 'multipart/form-data; boundary=x' }, {}]) {
      const answer = await fetch(`${url}/ingest`, {
        method: 'POST',
        headers,
        body: Buffer.from(`{"${'x'.repeat(5_000)}`),
      });
      expect([answer.status, await answer.json()]).toEqual([202, { bytes: 5_002 }]);
    }
  });
});

describe('answers', () => {
  it('formats errors in the style of the operation', async () => {
    const server = await start();
    const answer = await server.inject({ method: 'POST', url: '/ingest', payload: 'busy' });
    expect(answer.statusCode).toBe(503);
    expect(answer.headers['retry-after']).toBe('3');
    expect(answer.json()).toMatchObject({ error: 'Too much work is waiting (bytes).', code: 'OVERLOADED' });
  });

  it.each(['/broken', '/lacking'])('does not expose the error of %s', async (url) => {
    const server = await start();
    const answer = await server.inject(url);
    expect(answer.statusCode).toBe(500);
    expect(answer.body).not.toMatch(/hunter2|there/);
    expect(answer.json()).toMatchObject({ code: 'INTERNAL', request_id: answer.headers['x-request-id'] });
  });

  it('sends other media types', async () => {
    const server = await start();
    const answer = await server.inject('/csv');
    expect(answer.headers).toMatchObject({
      'content-type': 'text/csv; charset=utf-8',
      'content-disposition': 'attachment',
    });
    expect(answer.body).toBe('a');
  });

  it('counts requests by operation and status', async () => {
    const { registry } = await import('../../../infra/telemetry/metrics.ts');
    const server = await start();
    await server.inject('/broken');
    const count = /runlake_http_request_duration_seconds_count\{operation="broken",status="500"\} [1-9]/;
    await expect.poll(() => registry.metrics()).toMatch(count);
    expect(await registry.metrics()).toContain('runlake_process_cpu_seconds_total');
  });
});

describe('the connection', () => {
  it('responds 414 to every URL over the limit, also one of 100 KB', async () => {
    const { url } = await listen();
    const answer = await fetch(`${url}/wait?x=${'y'.repeat(100_000)}`);
    expect(answer.status).toBe(414);
    expect(await answer.json()).toMatchObject({
      code: 'URL_TOO_LONG',
      detail: expect.stringMatching(/longer than 65536 bytes/),
    });
  });

  it('responds 431 to headers over the limit', async () => {
    const { port } = await listen();
    const answer = await raw(port, `GET /alive HTTP/1.1\r\nHost: x\r\nX-Long: ${'y'.repeat(3 * 1024 * 1024)}`);
    expect(answer).toMatch(/^HTTP\/1\.1 431 [\s\S]*larger than[\s\S]*HEADERS_TOO_LARGE/);
  });

  it.each(['NONSENSE\r\n\r\n', 'GET / HTTP/9.9\r\n\r\n', 'GET /alive HTTP/1.1\r\nBad Header: x\r\n\r\n'])(
    'responds 400 to %j',
    async (bytes) => {
      const { port } = await listen();
      const answer = await raw(port, bytes);
      expect(answer).toMatch(/^HTTP\/1\.1 400 Bad Request\r\n[\s\S]*"code":"BAD_REQUEST"/);
    },
  );

  it('responds 408 to a request that does not arrive in time', async () => {
    const { port } = await listen({ requestTimeoutMs: 100 });
    const head = 'POST /ingest HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf';
    expect(await raw(port, head)).toMatch(/^HTTP\/1\.1 408 [\s\S]*within 100 ms[\s\S]*REQUEST_TIMEOUT/);
  });

  it('continues after a client that disconnects during its request', async () => {
    const { port, url } = await listen();
    const socket = connect({ port, host: '127.0.0.1' });
    socket.write('POST /echo/x HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{');
    socket.destroy();
    expect((await fetch(`${url}/alive`)).status).toBe(200);
  });
});

describe('drain', () => {
  it('finishes in-flight requests, rejects new ones, and serves liveness throughout', async () => {
    const { server, url } = await listen();
    const inFlight = fetch(`${url}/wait`);
    await expect.poll(() => waiting).toBe(1);
    const drained = server.drain();
    const refused = await fetch(`${url}/echo/x`, { method: 'POST', headers: json, body: '{}' });
    expect(refused.status).toBe(503);
    expect(refused.headers.get('retry-after')).toBe('1');
    expect(refused.headers.get('connection')).toBe('close');
    expect(await refused.json()).toMatchObject({ code: 'DRAINING' });
    expect((await fetch(`${url}/alive`)).status).toBe(200);
    releaseWaitingRequests();
    expect(await (await inFlight).json()).toEqual({ done: true });
    expect(await drained).toBe(0);
    await expect(fetch(`${url}/alive`)).rejects.toThrow();
  });

  it('aborts requests that exceed the drain timeout', async () => {
    const { server, url } = await listen({ drainTimeoutMs: 100 });
    const inFlight = fetch(`${url}/wait`).catch((error: Error) => error);
    await expect.poll(() => waiting).toBe(1);
    expect(await server.drain()).toBe(1);
    expect(await inFlight).toBeInstanceOf(Error);
  });

  it('does not wait for requests whose client has disconnected', async () => {
    const { server, url } = await listen();
    const disconnect = new AbortController();
    const inFlight = fetch(`${url}/wait`, { signal: disconnect.signal }).catch(() => 'left');
    await expect.poll(() => waiting).toBe(1);
    disconnect.abort();
    expect(await inFlight).toBe('left');
    expect(await server.drain()).toBe(0);
  });
});

describe('security headers', () => {
  it.each([
    '/alive',
    '/v1/csv',
    '/v1/broken',
    '/nowhere',
    '/openapi.json',
    '/%zz',
    '/docs',
    '/docs/static/swagger-ui.css',
  ])('%s: forbids type sniffing and framing', async (url) => {
    const { headers } = await (await start()).inject({ url });
    expect(headers).toMatchObject({ 'x-content-type-options': 'nosniff', 'x-frame-options': 'DENY' });
  });

  it('allow the documentation pages to load their own resources, and no others', async () => {
    const server = await start();
    const page = await server.inject({ url: '/docs' });
    expect(page.headers['content-security-policy']).toContain("default-src 'self'");
    expect(page.headers['content-security-policy']).toContain("frame-ancestors 'none'");
    expect(page.body).not.toMatch(/<script(?![^>]*src="\.?\/?[\w./-]+")/);
    expect((await server.inject({ url: '/alive' })).headers['content-security-policy']).toBeUndefined();
  });

  it.each(['..%5c..%5cpackage.json', '..%2f..%2fpackage.json', '%00', '.%2e/package.json', 'nothing.js'])(
    'rejects a path outside of the static files: %s',
    async (path) => {
      const answer = await (await start()).inject({ url: `/docs/static/${path}` });
      expect(answer.statusCode).toBeGreaterThanOrEqual(400);
      expect(answer.statusCode).toBeLessThan(500);
    },
  );
});
