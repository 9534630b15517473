/** WebSockets through the proxy of deployments, with servers and clients of `ws`. */
import { once } from 'node:events';
import { createServer } from 'node:http';
import { connect } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import WebSocket, { WebSocketServer } from 'ws';
import { refusalHeader } from '../../../api/server/error-response.ts';
import { listenOnLoopback } from '../../infra/listen-on-loopback.ts';
import { until } from '../../infra/until.ts';
import { findRefusingUrl, openProxy, type ProxyUnderTest, startReplica } from './open-proxy.ts';

const closers: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

/** Starts a replica that accepts WebSockets. */
async function startSocketServer(options: object = {}): Promise<{ url: string; sockets: WebSocketServer }> {
  const server = createServer();
  const sockets = new WebSocketServer({ server, ...options });
  const port = await listenOnLoopback(server);
  closers.push(() => {
    for (const client of sockets.clients) client.terminate();
    server.close();
  });
  return { url: `http://127.0.0.1:${port}`, sockets };
}

async function proxyFor(...replicas: string[]): Promise<ProxyUnderTest> {
  const proxy = await openProxy(replicas);
  closers.push(() => proxy.close());
  return proxy;
}

const toSocketUrl = ({ url }: ProxyUnderTest, path = '/stream?x=1') => url.replace('http:', 'ws:') + path;

describe('a WebSocket', () => {
  it('carries texts, bytes, pings, subprotocol and close code in both directions', async () => {
    const { url, sockets } = await startSocketServer({ handleProtocols: () => 'v2' });
    const proxy = await proxyFor(await findRefusingUrl(), url);
    const arrived: unknown[] = [];
    sockets.on('connection', (socket, request) => {
      arrived.push(request.url, request.headers['x-api-key'], request.headers['x-forwarded-prefix']);
      socket.on('message', (data, isBinary) => socket.send(data, { binary: isBinary }));
      socket.on('ping', () => arrived.push('ping'));
      socket.on('close', (code, reason) => arrived.push(code, String(reason)));
    });
    const client = new WebSocket(toSocketUrl(proxy), ['v1', 'v2'], { headers: { 'x-api-key': 'k' } });
    await once(client, 'open');
    expect(client.protocol).toBe('v2');
    for (const message of ['text', Buffer.alloc(3 * 1024 * 1024, 7)]) {
      client.send(message);
      const [data, isBinary] = await once(client, 'message');
      expect(isBinary).toBe(typeof message !== 'string');
      expect((data as Buffer).equals(Buffer.from(message))).toBe(true);
    }
    client.ping();
    await once(client, 'pong');
    client.close(4001, 'done');
    await once(client, 'close');
    await until('the close frame', () => arrived.includes('done'));
    expect(arrived).toEqual(['/stream?x=1', 'k', '/deployments/trips', 'ping', 4001, 'done']);
  });

  it('sets cookies for its deployment only, and nothing for the whole origin', async () => {
    const { url, sockets } = await startSocketServer();
    sockets.on('headers', (headers) => {
      headers.push('Set-Cookie: a=1; Path=/; Domain=example.com', 'X-Kept: 1', 'Clear-Site-Data: "*"');
      headers.push('Set-Cookie: runlake_session=1');
    });
    const client = new WebSocket(toSocketUrl(await proxyFor(url)));
    const [{ headers }] = await once(client, 'upgrade');
    expect(headers['set-cookie']).toEqual(['a=1; Path=/deployments/trips/']);
    expect(headers).toMatchObject({ 'x-kept': '1' });
    expect(headers).not.toHaveProperty('clear-site-data');
    client.terminate();
  });

  it('is closed when the replica closes it or breaks off', async () => {
    const { url, sockets } = await startSocketServer();
    const proxy = await proxyFor(url);
    sockets.once('connection', (socket) => socket.close(1012, 'restart'));
    const first = new WebSocket(toSocketUrl(proxy));
    expect((await once(first, 'close'))[0]).toBe(1012);
    sockets.once('connection', (socket) => socket.terminate());
    const second = new WebSocket(toSocketUrl(proxy));
    expect((await once(second, 'close'))[0]).toBe(1006);
  });

  it('ends at the replica when the client breaks off', async () => {
    const { url, sockets } = await startSocketServer();
    const client = new WebSocket(toSocketUrl(await proxyFor(url)));
    await once(client, 'open');
    const [socket] = sockets.clients;
    client.terminate();
    await once(socket as WebSocket, 'close');
  });

  it('is read no faster than the other side reads', async () => {
    const { url, sockets } = await startSocketServer();
    const proxy = await proxyFor(url);
    const client = new WebSocket(toSocketUrl(proxy));
    await once(client, 'open');
    for (const socket of sockets.clients) socket.pause();
    const chunk = Buffer.alloc(1024 * 1024);
    for (let sent = 0; sent < 64; sent += 1) client.send(chunk);
    let last = -1;
    await until('the client to wait', () => {
      const isWaiting = client.bufferedAmount === last;
      last = client.bufferedAmount;
      return isWaiting;
    });
    expect(client.bufferedAmount).toBeGreaterThan(32 * chunk.length);
    // The proxy reads nothing from the client now, so that it cannot notice this.
    client.terminate();
    await proxy.close();
  });

  it('ends when the replica reads nothing for a while, but not when there is nothing to read', async () => {
    const { url, sockets } = await startSocketServer();
    const proxy = await openProxy([url], { stallTimeoutMs: 50 });
    closers.push(() => proxy.close());
    const [idle, stalled] = [new WebSocket(toSocketUrl(proxy)), new WebSocket(toSocketUrl(proxy, '/stalled'))];
    sockets.on('connection', (socket, request) => {
      if (request.url === '/stalled') socket.pause();
      else socket.on('message', (data) => socket.send(data));
    });
    await Promise.all([once(idle, 'open'), once(stalled, 'open')]);
    for (let sent = 0; sent < 64; sent += 1) stalled.send(Buffer.alloc(1024 * 1024));
    expect((await once(stalled, 'close'))[0]).toBe(1006);
    idle.send('still open');
    expect(String((await once(idle, 'message'))[0])).toBe('still open');
  });

  it('that the replica refuses gets the response of the replica', async () => {
    const replica = await startReplica(() => undefined);
    closers.push(() => replica.close());
    replica.server.on('upgrade', (_request, socket) =>
      socket.end('HTTP/1.1 401 Unauthorized\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}'),
    );
    const client = new WebSocket(toSocketUrl(await proxyFor(replica.url)));
    const [, response] = await once(client, 'unexpected-response');
    expect([response.statusCode, response.headers['content-type']]).toEqual([401, 'application/json']);
    response.resume();
  });

  it('is opened on another replica if one refuses because it starts or drains', async () => {
    const refusing = await startReplica(() => undefined);
    closers.push(() => refusing.close());
    const closed = new Promise((resolve) => {
      refusing.server.on('upgrade', (_request, socket) => {
        socket.on('error', () => undefined).on('end', () => socket.destroy());
        socket.on('close', resolve).resume();
        // The rest does not follow.
        socket.write(`HTTP/1.1 503 Service Unavailable\r\n${refusalHeader}: true\r\nContent-Length: 2000\r\n\r\n{}`);
      });
    });
    const { url } = await startSocketServer();
    const client = new WebSocket(toSocketUrl(await proxyFor(refusing.url, url)));
    await once(client, 'open');
    await closed;
    client.terminate();
  });

  it('gets 404 for unknown deployments, and 503 without replicas', async () => {
    const proxy = await proxyFor(await findRefusingUrl());
    for (const [path, status] of [
      ['-other/stream', 404],
      ['/stream', 503],
    ] as const) {
      const client = new WebSocket(toSocketUrl(proxy, path));
      const [, response] = await once(client, 'unexpected-response');
      expect(response.statusCode).toBe(status);
      response.resume();
    }
  });

  it('is closed when the server drains', async () => {
    const { url } = await startSocketServer();
    const proxy = await proxyFor(url);
    const client = new WebSocket(toSocketUrl(proxy));
    await once(client, 'open');
    const closed = once(client, 'close');
    expect(await proxy.server.drain()).toBe(0);
    expect((await closed)[0]).toBe(1006);
  });
});

it('an upgrade request for another path gets an ordinary response, which ends the connection', async () => {
  const proxy = await proxyFor();
  const { hostname, port } = new URL(proxy.url);
  const socket = connect(Number(port), hostname);
  socket.write(
    `GET /openapi.json HTTP/1.1\r\nHost: ${hostname}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n` +
      'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n',
  );
  let received = '';
  socket.on('data', (chunk) => {
    received += chunk;
  });
  await once(socket, 'close');
  expect(received).toMatch(/^HTTP\/1.1 200 OK\r\n/);
  expect(received).toContain('"openapi":"3.1.0"');
});
