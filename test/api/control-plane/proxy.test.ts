/** The proxy of deployments in front of HTTP servers, over sockets. `proxied-agents.test.ts` has real agent servers. */
import { randomBytes } from 'node:crypto';
import { request as httpRequest, type IncomingMessage, type RequestListener } from 'node:http';
import { text } from 'node:stream/consumers';
import { setImmediate } from 'node:timers/promises';
import { afterEach, describe, expect, it } from 'vitest';
import { toClientHeaders } from '../../../api/control-plane/proxy-headers.ts';
import { until } from '../../infra/until.ts';
import { findRefusingUrl, openProxy, type ProxyUnderTest, type Replica, startReplica } from './open-proxy.ts';

const opened: { close(): Promise<void> }[] = [];
afterEach(async () => {
  for (const each of opened.splice(0).reverse()) await each.close();
});

async function replicaWith(respond: RequestListener): Promise<Replica> {
  const replica = await startReplica(respond);
  opened.push(replica);
  return replica;
}

async function proxyFor(...replicas: (Replica | string)[]): Promise<ProxyUnderTest> {
  const proxy = await openProxy(replicas.map((each) => (typeof each === 'string' ? each : each.url)));
  opened.push(proxy);
  return proxy;
}

const echo: RequestListener = async (request, response) => {
  const { method, url, headers } = request;
  response.setHeader('content-type', 'application/json');
  response.end(JSON.stringify({ method, url, headers, body: await text(request) }));
};

interface Echoed {
  readonly method: string;
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

/** Sends a request whose target and headers `fetch` would change. */
function send(
  proxy: ProxyUnderTest,
  path: string,
  { headers = {}, method = 'GET', body = '' }: { headers?: object; method?: string; body?: string } = {},
): Promise<{ status: number; headers: IncomingMessage['headers']; body: string }> {
  const { hostname, port, pathname } = new URL(proxy.url);
  return new Promise((resolve, reject) => {
    httpRequest({ hostname, port, path: pathname + path, method, headers: { ...headers }, agent: false })
      .once('error', reject)
      .once('response', async (response: IncomingMessage) =>
        resolve({ status: response.statusCode ?? 0, headers: response.headers, body: await text(response) }),
      )
      .end(body);
  });
}

async function echoed(...parameters: Parameters<typeof send>): Promise<Echoed> {
  return JSON.parse((await send(...parameters)).body) as Echoed;
}

describe('requests', () => {
  it('reach the replica with method, path, query, headers and body', async () => {
    const proxy = await proxyFor(await replicaWith(echo));
    const options = { method: 'PATCH', headers: { 'x-api-key': 'k', 'content-type': 'text/x-odd' }, body: '{not json' };
    const { method, url, headers, body } = await echoed(proxy, '/threads/a%2Fb//c/?x=1&x=%20&y', options);
    expect({ method, url, body }).toEqual({
      method: 'PATCH',
      url: '/threads/a%2Fb//c/?x=1&x=%20&y',
      body: '{not json',
    });
    expect(headers).toMatchObject({ 'x-api-key': 'k', 'content-type': 'text/x-odd', host: new URL(proxy.url).host });
  });

  it.each([
    ['', '/'],
    ['/', '/'],
    ['?a=/b', '/?a=/b'],
    ['/deployments/trips/ok', '/deployments/trips/ok'],
    ['/api/v1/runs', '/api/v1/runs'],
  ])('%j becomes %j', async (path, expected) => {
    expect((await echoed(await proxyFor(await replicaWith(echo)), path)).url).toBe(expected);
  });

  it('may have a whole URL as their target', async () => {
    const proxy = await proxyFor(await replicaWith(echo));
    const { hostname, port } = new URL(proxy.url);
    const path = 'http://runlake.example/deployments/trips/ok?x=1';
    const body = await new Promise<string>((resolve, reject) => {
      httpRequest({ hostname, port, path, agent: false })
        .once('error', reject)
        .once('response', (response: IncomingMessage) => resolve(text(response)))
        .end();
    });
    expect((JSON.parse(body) as Echoed).url).toBe('/ok?x=1');
  });

  it('name the deployment and the sender in forwarding headers', async () => {
    const proxy = await proxyFor(await replicaWith(echo));
    const { host } = new URL(proxy.url);
    expect((await echoed(proxy, '/ok')).headers).toMatchObject({
      'x-forwarded-prefix': '/deployments/trips',
      'x-forwarded-host': host,
      'x-forwarded-proto': 'http',
      'x-forwarded-for': '127.0.0.1',
    });
    const headers = { 'x-forwarded-for': '192.0.2.1', 'x-forwarded-proto': 'https', 'x-forwarded-prefix': '/evil' };
    expect((await echoed(proxy, '/ok', { headers })).headers).toMatchObject({
      'x-forwarded-prefix': '/deployments/trips',
      'x-forwarded-proto': 'https',
      'x-forwarded-for': '192.0.2.1, 127.0.0.1',
    });
  });

  it('lose headers that concern one connection', async () => {
    const headers = {
      connection: 'keep-alive, x-secret, HTTP2-Settings',
      'keep-alive': 'timeout=5',
      'x-secret': '1',
      'proxy-authorization': 'Basic eA==',
      te: 'gzip',
      upgrade: 'h2c',
      'http2-settings': 'AAA',
      'x-kept': '2',
    };
    const received = (await echoed(await proxyFor(await replicaWith(echo)), '/ok', { headers })).headers;
    expect(received['x-kept']).toBe('2');
    for (const name of ['keep-alive', 'x-secret', 'proxy-authorization', 'te', 'upgrade', 'http2-settings'])
      expect(received, name).not.toHaveProperty(name);
  });

  it('of curl with `Expect: 100-continue` and of GET with a body are accepted', async () => {
    const proxy = await proxyFor(await replicaWith(echo));
    const expecting = { method: 'POST', headers: { expect: '100-continue' }, body: 'x' };
    expect((await echoed(proxy, '/ok', expecting)).body).toBe('x');
    expect((await echoed(proxy, '/ok', { headers: { 'content-length': '1' }, body: 'x' })).method).toBe('GET');
  });

  it('may have bodies beyond the limits of the main API, in both directions', async () => {
    const size = 40 * 1024 * 1024;
    const replica = await replicaWith((request, response) => request.pipe(response));
    const sent = randomBytes(size);
    const response = await fetch((await proxyFor(replica)).url, { method: 'POST', body: sent });
    expect(Buffer.from(await response.arrayBuffer()).equals(sent)).toBe(true);
  });

  it.each(['/a/../b', '/..', '/%2e%2e/b', '/..b', '/a../b', '/a/..\\b', '/\\a.example/b'])(
    '%j is refused',
    async (path) => {
      const replica = await replicaWith(echo);
      expect((await send(await proxyFor(replica), path)).status).toBe(400);
      expect(replica.requests).toHaveLength(0);
    },
  );

  it('for unknown deployments get 404, and below `/deployments` alone the 404 of the API', async () => {
    const { url } = await proxyFor(await replicaWith(echo));
    for (const [address, code] of [
      [`${url}-other/ok`, 'NOT_FOUND'],
      [new URL('/deployments', url), 'ROUTE_NOT_FOUND'],
    ] as const) {
      const response = await fetch(address);
      expect(response.status).toBe(404);
      expect(await response.json()).toMatchObject({ code });
    }
  });
});

describe('responses', () => {
  const answerWith =
    (status: number, headers: Record<string, string | string[]>): RequestListener =>
    (_request, response) =>
      response.writeHead(status, headers).end();

  it.each([
    [302, '/login?next=/', '/deployments/trips/login?next=/'],
    [201, '/items/1', '/deployments/trips/items/1'],
    [308, 'https://elsewhere.example/x', 'https://elsewhere.example/x'],
    [302, '//elsewhere.example/x', '//elsewhere.example/x'],
    [302, 'next', 'next'],
    // Clients of the agent server append it to the URL of the deployment.
    [200, '/threads/t/runs/r/stream', '/threads/t/runs/r/stream'],
  ])('with status %s and Location %j get %j', async (status, location, expected) => {
    const { headers } = await send(await proxyFor(await replicaWith(answerWith(status, { location }))), '/x');
    expect(headers.location).toBe(expected);
  });

  it('with absolute references to the replica refer to the deployment', async () => {
    const replica = await replicaWith((request, response) =>
      response.writeHead(302, { location: String(request.headers['x-to']), 'content-location': '/threads/t' }).end(),
    );
    const proxy = await proxyFor(replica);
    for (const origin of [replica.url, new URL(proxy.url).origin]) {
      const { headers } = await send(proxy, '/x', { headers: { 'x-to': `${origin}/docs/?a` } });
      expect(headers).toMatchObject({
        location: '/deployments/trips/docs/?a',
        'content-location': '/deployments/trips/threads/t',
      });
    }
    const { headers } = await send(proxy, '/x', { headers: { 'x-to': `${replica.url}0/docs` } });
    expect(headers.location).toBe(`${replica.url}0/docs`);
  });

  it('have a Content-Location in which clients find the ids of a run, whatever the slug', () => {
    // The pattern of both stock clients.
    const pattern = /(\/threads\/(?<thread_id>.+))?\/runs\/(?<run_id>.+)/;
    for (const slug of ['trips', 'threads', 'my-threads', 'runs']) {
      const response = { status: 200, headers: { 'content-location': '/threads/t/runs/r' } };
      const headers = toClientHeaders(response, { prefix: `/deployments/${slug}`, origins: [] });
      const { groups } = pattern.exec(String(headers['content-location'])) ?? {};
      expect({ slug, ...groups }).toEqual({ slug, thread_id: 't', run_id: 'r' });
    }
  });

  it('lose headers that concern one connection', async () => {
    const hop = { connection: 'close, x-hop', 'x-hop': '1', 'proxy-authenticate': 'Basic', 'x-kept': '2' };
    const { headers } = await send(await proxyFor(await replicaWith(answerWith(200, hop))), '/x', {
      headers: { connection: 'keep-alive' },
    });
    expect(headers).toMatchObject({ connection: 'keep-alive', 'x-kept': '2' });
    expect(headers).not.toHaveProperty('x-hop');
    expect(headers).not.toHaveProperty('proxy-authenticate');
  });

  it('keep status, and an error of the replica is not repeated', async () => {
    const replica = await replicaWith(answerWith(503, { 'retry-after': '7' }));
    const { status, headers } = await send(await proxyFor(replica), '/x');
    expect([status, headers['retry-after'], replica.requests.length]).toEqual([503, '7', 1]);
  });

  it('to preflights and HEAD are those of the replica', async () => {
    const proxy = await proxyFor(await replicaWith(answerWith(204, { 'access-control-allow-origin': 'http://a' })));
    const preflight = { method: 'OPTIONS', headers: { origin: 'http://a', 'access-control-request-method': 'POST' } };
    expect((await send(proxy, '/x', preflight)).headers['access-control-allow-origin']).toBe('http://a');
    const sized = await proxyFor(await replicaWith((_, response) => response.setHeader('content-length', 5).end()));
    expect((await send(sized, '/x', { method: 'HEAD' })).headers['content-length']).toBe('5');
  });
});

describe('streams', () => {
  const startStream: RequestListener = (_request, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.flushHeaders();
  };

  it('arrive event by event; the headers arrive before the first one', async () => {
    const streams: Parameters<RequestListener>[1][] = [];
    const replica = await replicaWith((request, response) => {
      startStream(request, response);
      streams.push(response);
    });
    const response = await fetch((await proxyFor(replica)).url);
    expect(response.headers.get('content-type')).toBe('text/event-stream');
    const reader = (response.body as ReadableStream<Uint8Array>).getReader();
    for (const event of ['data: 1\n\n', 'data: 2\n\n']) {
      streams[0]?.write(event);
      expect(Buffer.from((await reader.read()).value ?? []).toString()).toBe(event);
    }
    streams[0]?.end();
    expect((await reader.read()).done).toBe(true);
  });

  it.each(['before', 'after'])('are cancelled when the client disconnects %s the response', async (when) => {
    let closed = 0;
    const replica = await replicaWith((request, response) => {
      response.once('close', () => {
        closed += 1;
      });
      if (when === 'after') startStream(request, response);
    });
    const proxy = await proxyFor(replica);
    const leaving = new AbortController();
    const response = fetch(proxy.url, { signal: leaving.signal });
    response.catch(() => undefined);
    await until('the request to arrive', () => replica.requests.length === 1);
    if (when === 'after') await response;
    leaving.abort();
    await until('the request to be cancelled', () => closed === 1);
  });

  it('that break at the replica break at the client', async () => {
    const replica = await replicaWith((request, response) => {
      startStream(request, response);
      response.write('data: 1\n\n', () => response.destroy());
    });
    const response = await fetch((await proxyFor(replica)).url);
    await expect(response.text()).rejects.toThrow();
  });

  it('are read no faster than the client reads', async () => {
    const total = 64 * 1024 * 1024;
    let written = 0;
    const replica = await replicaWith(async (_request, response) => {
      const chunk = Buffer.alloc(64 * 1024);
      for (; written < total; written += chunk.length)
        if (!response.write(chunk)) await new Promise((resolve) => response.once('drain', resolve));
      response.end();
    });
    const response = await fetch((await proxyFor(replica)).url);
    let last = -1;
    await until('the replica to wait', async () => {
      const isWaiting = written === last && written > 0;
      last = written;
      await setImmediate();
      return isWaiting;
    });
    expect(written).toBeLessThan(total / 2);
    expect((await response.arrayBuffer()).byteLength).toBe(total);
  });

  it('are cut when the server drains, so that their clients reconnect', async () => {
    const replica = await replicaWith(startStream);
    const proxy = await proxyFor(replica);
    const { body } = await fetch(proxy.url);
    const drained = proxy.server.drain();
    await expect(new Response(body).text()).rejects.toThrow();
    expect(await drained).toBe(0);
  });
});

describe('replicas', () => {
  it('that refuse connections are skipped, and the next one gets the body', async () => {
    const replica = await replicaWith(echo);
    const proxy = await proxyFor(await findRefusingUrl(), replica);
    expect((await echoed(proxy, '/runs', { method: 'POST', body: 'once' })).body).toBe('once');
    const long = 'x'.repeat(1024 * 1024);
    expect((await echoed(proxy, '/runs', { method: 'POST', body: long })).body).toBe(long);
  });

  it('that drain are skipped: they refuse before they process', async () => {
    const draining = await replicaWith((request, response) => {
      response.writeHead(503, { 'x-runlake-refused': 'true', connection: 'close' }).end('{}');
      request.resume();
    });
    const replica = await replicaWith(echo);
    const proxy = await proxyFor(draining, replica);
    expect((await echoed(proxy, '/runs', { method: 'POST', body: 'again' })).body).toBe('again');
    expect([draining.requests.length, replica.requests.length]).toEqual([1, 1]);
  });

  it('that break off are replaced only if the method is idempotent', async () => {
    const breaking = await replicaWith((_request, response) => response.destroy());
    const replica = await replicaWith(echo);
    const proxy = await proxyFor(breaking, replica);
    expect((await echoed(proxy, '/threads')).method).toBe('GET');
    const failed = await send(proxy, '/runs', { method: 'POST', body: 'x' });
    expect([failed.status, JSON.parse(failed.body).code]).toEqual([503, 'DEPLOYMENT_NOT_SERVING']);
    expect(replica.requests.map(({ method }) => method)).toEqual(['GET']);
  });

  it('that are all gone lead to 503 with Retry-After', async () => {
    for (const replicas of [[], [await findRefusingUrl(), await findRefusingUrl()]]) {
      const { status, headers, body } = await send(await proxyFor(...replicas), '/ok');
      expect([status, JSON.parse(body).code]).toEqual([503, 'DEPLOYMENT_NOT_SERVING']);
      expect(Number(headers['retry-after'])).toBeGreaterThan(0);
    }
  });

  it('may be exchanged while clients send requests', async () => {
    const retired: Replica[] = [];
    let current = await startReplica(echo);
    const proxy = await openProxy([current.url]);
    let failed = 0;
    let done = 0;
    let isOver = false;
    const client = async () => {
      while (!isOver) {
        const response = await fetch(`${proxy.url}/runs`, { method: 'POST', body: String(done) });
        if (!response.ok || ((await response.json()) as Echoed).body === '') failed += 1;
        done += 1;
      }
    };
    const clients = Array.from({ length: 8 }, client);
    for (let exchange = 1; exchange <= 10; exchange += 1) {
      await until('more requests', () => done > exchange * 20);
      const next = await startReplica(echo);
      proxy.replicas.unshift(next.url);
      proxy.replicas.length = 1;
      retired.push(current);
      // As a host does: requests that were sent before the exchange arrive before the replica ends.
      const sent = done;
      await until('the requests before the exchange', () => done >= sent + 2 * clients.length);
      const former = current;
      void new Promise((resolve) => former.server.close(resolve));
      current = next;
    }
    isOver = true;
    await Promise.all(clients);
    await proxy.close();
    for (const each of [...retired, current]) each.server.closeAllConnections();
    await current.close();
    expect(failed).toBe(0);
  });
});
