import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { createServer as createSecureServer } from 'node:https';
import { type AddressInfo, createServer as createTcpServer, type Server, type Socket } from 'node:net';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { ObjectStore } from '../../../../infra/objects/object-store.ts';
import { openS3Store } from '../../../../infra/objects/s3/open-s3-store.ts';
import type { S3Options } from '../../../../infra/objects/s3/s3-options.ts';
import { certificatesIn } from '../../../../infra/tls/trusted-authorities.ts';
import { checkDestination } from '../../../../pipelines/exports/destinations/check-destination.ts';
import { authorityFile, serverCertificate } from '../../tls/certificates.ts';

/** Addresses at which no store speaks the S3 API, and what becomes of a destination there. */
const limits = { attempts: 2, connectMs: 1_000, silenceMs: 400, callMs: 1_200 };
const secrets = { accessKeyId: 'AKIAIOSFODNN7EXAMPLE', secretAccessKey: 'wJalrXUtnFEMI-K7MDENG' };

let cleanUps: (() => Promise<unknown> | unknown)[];
beforeEach(() => {
  cleanUps = [];
});
afterEach(async () => {
  for (const cleanUp of cleanUps.reverse()) await cleanUp();
});

async function listen(server: Server): Promise<number> {
  const sockets = new Set<Socket>();
  server.on('connection', (socket: Socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  cleanUps.push(async () => {
    for (const socket of sockets) socket.destroy();
    server.close();
    await once(server, 'close');
  });
  return (server.address() as AddressInfo).port;
}

type Answer = (request: IncomingMessage, response: ServerResponse) => void;
const web = async (answer: Answer) => `http://127.0.0.1:${await listen(createServer(answer))}`;
const raw = async (speak: (socket: Socket) => void) => `http://127.0.0.1:${await listen(createTcpServer(speak))}`;

const after: (answer: Answer) => Answer = (answer) => (request, response) =>
  void request.resume().once('end', () => answer(request, response));
const page = (status: number, body = '<html><title>Welcome</title></html>', headers: Record<string, string> = {}) =>
  web(after((_request, response) => response.writeHead(status, { 'content-type': 'text/html', ...headers }).end(body)));

function open(endpointUrl: string, options: Partial<S3Options> = {}): ObjectStore {
  const store = openS3Store({
    bucket: 'bucket',
    prefix: 'a/b',
    region: undefined,
    endpointUrl,
    isBucketInEndpoint: false,
    addressingStyle: 'auto',
    credentials: secrets,
    allowPrivateEndpoints: true,
    limits,
    ...options,
  });
  cleanUps.push(() => store.close());
  return store;
}

async function checked(endpointUrl: string, options: Partial<S3Options> = {}) {
  const startMs = performance.now();
  const error = await checkDestination(open(endpointUrl, options)).then(
    () => ({ code: 'passed', message: '' }),
    (thrown) => thrown,
  );
  expect(performance.now() - startMs).toBeLessThan(6_000);
  expect(error.message).not.toMatch(/Welcome|AKIA|wJalr/);
  return error;
}

/** Of answers to HEAD Node sends no body, and takes any. */
const endless: Answer = ({ method }, response) => {
  if (method === 'HEAD') return void response.end();
  const more = () => {
    while (!response.destroyed && response.write('x'.repeat(65_536)));
  };
  response.on('drain', more);
  more();
};
const slow: Answer = ({ method }, response) => {
  if (method === 'HEAD') return void response.end();
  const timer = setInterval(() => response.write(' '), 50);
  response.on('close', () => clearInterval(timer));
};

const invalid = { code: 'DESTINATION_ENDPOINT_INVALID', class: 'caller' };
const unavailable = { code: 'DESTINATION_UNAVAILABLE', class: 'transient' };

const table: readonly (readonly [what: string, endpoint: () => Promise<string>, expected: object])[] = [
  ['a web page for everything', () => page(200), invalid],
  ['a page that is not found', () => page(404), invalid],
  ['a method that is not allowed', () => page(405), invalid],
  ['a method that is not implemented', () => page(501), invalid],
  ['a bad request', () => page(400, 'no'), invalid],
  [
    'XML that is no answer of a store',
    () => page(400, '<a><b>1</b></a>', { 'content-type': 'application/xml' }),
    invalid,
  ],
  ['broken XML', () => page(400, '<Error><Code>', { 'content-type': 'application/xml' }), invalid],
  ['JSON of another API', () => page(404, '{"message":"no route"}', { 'content-type': 'application/json' }), invalid],
  ['a forbidden page', () => page(403), { code: 'DESTINATION_ACCESS_DENIED', class: 'caller' }],
  ['a page for those who sign in', () => page(401), { code: 'DESTINATION_ACCESS_DENIED', class: 'caller' }],
  ['a bad gateway', () => page(502), unavailable],
  ['an answer without end', () => web(after(endless)), { class: expect.any(String) }],
  ['an error without end', () => web(after((request, response) => endless(request, response.writeHead(400)))), invalid],
  ['an answer that drips', () => web(after(slow)), unavailable],
  ['silence', () => raw(() => undefined), unavailable],
  ['silence after the question', () => web(() => undefined), unavailable],
  ['a closed door', () => raw((socket) => socket.destroy()), unavailable],
  ['a shell', () => raw((socket) => void socket.write('SSH-2.0-OpenSSH_9.6\r\n')), invalid],
  ['a mail server', () => raw((socket) => void socket.end('220 mail.example ESMTP\r\n')), invalid],
  ['nobody', async () => 'http://127.0.0.1:1', unavailable],
  ['no such host', async () => 'http://no-such-host.invalid:9000', invalid],
  ['a host whose name is longer than any', async () => `http://${'a.'.repeat(200)}invalid:9000`, invalid],
  ['TLS where there is none', async () => (await page(200)).replace('http:', 'https:'), invalid],
];

describe('an endpoint with', () => {
  it.each(table)('%s', async (_what, endpoint, expected) => {
    expect(await checked(await endpoint())).toMatchObject({
      status: 400,
      message: expect.stringMatching(/\(step (reach|write|read), /),
      remedy: expect.stringMatching(/./),
      ...expected,
    });
  });

  it.each(['xn--a', 'bucket--x-s3'])('AWS, with the bucket %s, of which no address can be made', async (bucket) => {
    const store = open('', { bucket, endpointUrl: undefined });
    await expect(checkDestination(store)).rejects.toMatchObject({
      code: 'DESTINATION_BUCKET_NOT_VALID',
      class: 'caller',
    });
  });

  it('a redirect does not lead elsewhere', async () => {
    let asked = 0;
    const elsewhere = await web((_request, response) => {
      asked++;
      response.end();
    });
    for (const status of [301, 302, 307, 308]) {
      const endpoint = await page(status, '', { location: `${elsewhere}/latest/meta-data` });
      expect(await checked(endpoint)).toMatchObject({ class: 'caller' });
    }
    expect(asked).toBe(0);
  });

  it('a certificate that nobody trusts, or of another name', async () => {
    const secure = (name: 'server' | 'elsewhere') =>
      createSecureServer(
        serverCertificate(name),
        after((_request, response) => response.end()),
      );
    const endpoint = `https://localhost:${await listen(secure('server'))}`;
    const authorities = certificatesIn(authorityFile);
    expect(await checked(endpoint)).toMatchObject({ ...invalid, message: expect.stringContaining('not trusted') });
    expect(await checked(endpoint, { authorities })).toMatchObject({
      ...invalid,
      message: expect.stringContaining('does not speak the S3 API'),
    });
    const elsewhere = `https://localhost:${await listen(secure('elsewhere'))}`;
    expect(await checked(elsewhere, { authorities })).toMatchObject({
      ...invalid,
      message: expect.stringContaining('for another name'),
    });
  });
});

describe('requests', () => {
  async function seen(endpoint: (port: string) => string, options: Partial<S3Options>): Promise<string[]> {
    const lines: string[] = [];
    const url = await web(
      after(({ method, url: path, headers }, response) => {
        lines.push(`${method} ${headers.host} ${path}`);
        response.setHeader('etag', '"1"').end();
      }),
    );
    const { port } = new URL(url);
    await open(endpoint(port), options).put('k e/y', Buffer.from('x'));
    return lines.map((line) => line.replaceAll(port, 'PORT'));
  }

  const at = (host: string) => (port: string) => `http://${host}:${port}`;
  const cases: readonly (readonly [string, (port: string) => string, Partial<S3Options>, string])[] = [
    ['name the bucket in the path', at('127.0.0.1'), {}, '127.0.0.1:PORT /bucket/a/b/k%20e/y'],
    ['do so behind a path', (port) => `http://127.0.0.1:${port}/s3/`, {}, '127.0.0.1:PORT /s3/bucket/a/b/k%20e/y'],
    ['do so where told', at('localhost'), { addressingStyle: 'path' }, 'localhost:PORT /bucket/a/b/k%20e/y'],
    [
      'go to an address that holds the bucket as it is',
      at('localhost'),
      { isBucketInEndpoint: true },
      'localhost:PORT /a/b/k%20e/y',
    ],
    [
      'do so with a slash behind it, a path, and no name of the bucket',
      (port) => `http://localhost:${port}/its/bucket/`,
      { isBucketInEndpoint: true, bucket: undefined },
      'localhost:PORT /its/bucket/a/b/k%20e/y',
    ],
  ];
  it.each(cases)('%s', async (_what, endpoint, options, expected) => {
    expect(await seen(endpoint, options)).toEqual([`PUT ${expected}?x-id=PutObject`]);
  });

  it('name the bucket in the host where told', async () => {
    await expect(
      seen(at('localhost'), { addressingStyle: 'virtual', limits: { ...limits, attempts: 1 } }),
    ).rejects.toThrow(/cannot be resolved/);
  });

  it('do not hold up the end: closing ends what is under way', async () => {
    const store = open(await raw(() => undefined), { limits: {} });
    const put = store.put('key', Buffer.from('x')).catch((error) => error);
    await store.close();
    expect(await put).toMatchObject({ code: 'DESTINATION_UNAVAILABLE' });
  });

  it('without credentials anywhere are told apart', async () => {
    const before = { ...process.env };
    Object.assign(process.env, { AWS_EC2_METADATA_DISABLED: 'true', HOME: '/nonexistent', AWS_PROFILE: '' });
    for (const name of ['AWS_ACCESS_KEY_ID', 'AWS_SECRET_ACCESS_KEY', 'AWS_SESSION_TOKEN', 'AWS_PROFILE']) {
      delete process.env[name];
    }
    try {
      expect(await checked(await page(200), { credentials: undefined })).toMatchObject({
        code: 'DESTINATION_ACCESS_DENIED',
        message: expect.stringContaining('no credentials'),
      });
      Object.assign(process.env, { AWS_ACCESS_KEY_ID: 'env', AWS_SECRET_ACCESS_KEY: 'env' });
      // With those of the variables it gets as far as the page.
      expect(await checked(await page(200), { credentials: undefined })).toMatchObject(invalid);
    } finally {
      process.env = before;
    }
  });
});
