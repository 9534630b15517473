import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest';
import { type GuardedFetch, openGuardedFetch } from '../../../infra/network/guarded-fetch.ts';
import { listenOnLoopback } from '../listen-on-loopback.ts';

let server: Server;
let url: string;
let opened: GuardedFetch | undefined;
let respond: (request: IncomingMessage, response: ServerResponse) => void = () => undefined;

beforeAll(async () => {
  server = createServer((request, response) => respond(request, response));
  const port = await listenOnLoopback(server);
  url = `http://127.0.0.1:${port}/`;
});
afterAll(() => server.close());
afterEach(() => opened?.close());

function open({ allowPrivate = true, timeoutMs = 5_000 } = {}): GuardedFetch['fetch'] {
  opened = openGuardedFetch({
    ...{ allowPrivate, timeoutMs, maxConnections: 2, maxResponseBytes: 1_000 },
    refuse: (host, { about }) => new Error(`refused: ${host} is ${about}`),
    refuseSize: () => new Error('too large'),
  });
  return opened.fetch;
}

it('sends method, headers and body, and returns status, headers and body', async () => {
  respond = async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request as AsyncIterable<Buffer>) chunks.push(chunk);
    response.writeHead(201, { 'content-type': 'application/json', 'set-cookie': ['a=1', 'b=2'] });
    const { method, headers } = request;
    response.end(
      JSON.stringify({
        method,
        length: headers['content-length'],
        own: headers['x-own'],
        body: `${Buffer.concat(chunks)}`,
      }),
    );
  };
  const body = new URLSearchParams({ grant_type: 'a b' });
  const response = await open()(url, { method: 'POST', headers: { 'X-Own': 'yes' }, body });
  expect(response.status).toBe(201);
  expect(response.headers.getSetCookie()).toEqual(['a=1', 'b=2']);
  expect(await response.json()).toEqual({ method: 'POST', length: '14', own: 'yes', body: 'grant_type=a+b' });
});

it('does not follow redirects', async () => {
  respond = (_request, response) => response.writeHead(302, { location: 'http://169.254.169.254/' }).end();
  const response = await open()(url);
  expect([response.status, response.headers.get('location')]).toEqual([302, 'http://169.254.169.254/']);
});

it('returns responses without a body', async () => {
  respond = (_request, response) => response.writeHead(204).end();
  expect((await open()(url)).status).toBe(204);
});

it('refuses private addresses before it connects', async () => {
  let requests = 0;
  respond = (_request, response) => {
    requests += 1;
    response.end();
  };
  await expect(open({ allowPrivate: false })(url)).rejects.toThrow('refused: 127.0.0.1 is a loopback address');
  expect(requests).toBe(0);
});

it('stops reading a response that is too large', async () => {
  respond = (_request, response) => {
    const write = () => {
      while (!response.destroyed && response.write(Buffer.alloc(64 * 1024)));
      response.once('drain', write);
    };
    write();
  };
  await expect(open()(url)).rejects.toThrow('too large');
});

it.each([
  ['a response that does not start', () => undefined],
  ['a response that does not end', (_request: IncomingMessage, response: ServerResponse) => void response.write('a')],
])('ends after its timeout: %s', async (_what, silent) => {
  respond = silent;
  await expect(open({ timeoutMs: 200 })(url)).rejects.toMatchObject({ name: 'TimeoutError' });
});

it('ends with the signal of the caller', async () => {
  respond = () => undefined;
  const controller = new AbortController();
  const sent = open()(url, { signal: controller.signal });
  controller.abort();
  await expect(sent).rejects.toMatchObject({ name: 'AbortError' });
});

it('rejects if the connection breaks', async () => {
  respond = (request) => request.socket.destroy();
  await expect(open()(url)).rejects.toMatchObject({ code: 'ECONNRESET' });
});
