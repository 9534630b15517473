import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { createServer as createSecureServer } from 'node:https';
import { createServer as createTcpServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { isWorthRetrying, type ObjectStore } from '../../../../infra/objects/object-store.ts';
import { openS3Store } from '../../../../infra/objects/s3/open-s3-store.ts';
import type { S3Options } from '../../../../infra/objects/s3/s3-connection.ts';
import { parseCertificates } from '../../../../infra/tls/trusted-authorities.ts';
import { checkDestination } from '../../../../pipelines/exports/destinations/check-destination.ts';
import { listenOnLoopback } from '../../listen-on-loopback.ts';
import { authorityFile, serverCertificate } from '../../tls/certificates.ts';

/** Checks of destinations whose endpoint does not implement the S3 API. */
const limits = { attempts: 2, connectTimeoutMs: 1_000, idleTimeoutMs: 400, callTimeoutMs: 1_200 };
const credentials = { accessKeyId: 'AKIAIOSFODNN7EXAMPLE', secretAccessKey: 'wJalrXUtnFEMI-K7MDENG' };

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
  const port = await listenOnLoopback(server);
  cleanUps.push(async () => {
    for (const socket of sockets) socket.destroy();
    server.close();
    await once(server, 'close');
  });
  return port;
}

type Answer = (request: IncomingMessage, response: ServerResponse) => void;
const web = async (answer: Answer) => `http://127.0.0.1:${await listen(createServer(answer))}`;
const raw = async (serve: (socket: Socket) => void) => `http://127.0.0.1:${await listen(createTcpServer(serve))}`;

const afterRequest: (answer: Answer) => Answer = (answer) => (request, response) =>
  void request.resume().once('end', () => answer(request, response));
const page = (status: number, body = '<html><title>Welcome</title></html>', headers: Record<string, string> = {}) =>
  web(
    afterRequest((_request, response) =>
      response.writeHead(status, { 'content-type': 'text/html', ...headers }).end(body),
    ),
  );

function open(endpointUrl: string, options: Partial<S3Options> = {}): ObjectStore {
  const store = openS3Store({
    bucket: 'bucket',
    prefix: 'a/b',
    region: undefined,
    endpointUrl,
    isBucketInEndpoint: false,
    addressingStyle: 'auto',
    credentials,
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

/** Sends an endless response. Node sends no body in responses to HEAD, and accepts any `write`. */
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
  ['a web page for every request', () => page(200), invalid],
  ['a page that is not found', () => page(404), invalid],
  ['a method that is not allowed', () => page(405), invalid],
  ['a method that is not implemented', () => page(501), invalid],
  ['a bad request', () => page(400, 'no'), invalid],
  [
    'XML that is not an S3 response',
    () => page(400, '<a><b>1</b></a>', { 'content-type': 'application/xml' }),
    invalid,
  ],
  ['broken XML', () => page(400, '<Error><Code>', { 'content-type': 'application/xml' }), invalid],
  ['JSON of another API', () => page(404, '{"message":"no route"}', { 'content-type': 'application/json' }), invalid],
  ['a 403 page', () => page(403), { code: 'DESTINATION_ACCESS_DENIED', class: 'caller' }],
  ['a 401 page', () => page(401), { code: 'DESTINATION_ACCESS_DENIED', class: 'caller' }],
  ['a bad gateway', () => page(502), unavailable],
  ['an endless response', () => web(afterRequest(endless)), { class: expect.any(String) }],
  [
    'an endless error',
    () => web(afterRequest((request, response) => endless(request, response.writeHead(400)))),
    invalid,
  ],
  ['a very slow response', () => web(afterRequest(slow)), unavailable],
  ['no response to a connection', () => raw(() => undefined), unavailable],
  ['no response to a request', () => web(() => undefined), unavailable],
  ['a closed connection', () => raw((socket) => socket.destroy()), unavailable],
  ['an SSH server', () => raw((socket) => void socket.write('SSH-2.0-OpenSSH_9.6\r\n')), invalid],
  ['a mail server', () => raw((socket) => void socket.end('220 mail.example ESMTP\r\n')), invalid],
  ['a closed port', async () => 'http://127.0.0.1:1', unavailable],
  ['an unknown host', async () => 'http://no-such-host.invalid:9000', invalid],
  ['a host name that is too long', async () => `http://${'a.'.repeat(200)}invalid:9000`, invalid],
  ['https for a server without TLS', async () => (await page(200)).replace('http:', 'https:'), invalid],
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

  it.each(['xn--a', 'bucket--x-s3'])('AWS and the bucket %s, which is not valid in a host name', async (bucket) => {
    const store = open('', { bucket, endpointUrl: undefined });
    await expect(checkDestination(store)).rejects.toMatchObject({
      code: 'DESTINATION_BUCKET_NOT_VALID',
      class: 'caller',
    });
  });

  it('a web page with status 404 is not reported as a missing object', async () => {
    await expect(open(await page(404)).get('object', { maxBytes: 1 })).rejects.toMatchObject(invalid);
  });

  it('default credentials whose metadata service does not respond in time', async () => {
    for (const name of ['AWS_ACCESS_KEY_ID', 'AWS_PROFILE', 'AWS_CONTAINER_CREDENTIALS_RELATIVE_URI'])
      vi.stubEnv(name, undefined);
    vi.stubEnv('AWS_SHARED_CREDENTIALS_FILE', '/dev/null');
    vi.stubEnv('AWS_CONFIG_FILE', '/dev/null');
    vi.stubEnv('AWS_EC2_METADATA_SERVICE_ENDPOINT', await web(() => undefined));
    cleanUps.push(() => vi.unstubAllEnvs());
    const limited = { ...limits, callTimeoutMs: 5_000 };
    const error = await checked(await page(200), { credentials: undefined, limits: limited });
    expect(error).toMatchObject({
      code: 'DESTINATION_ACCESS_DENIED',
      message: expect.stringContaining('no credentials'),
    });
    expect(isWorthRetrying(error)).toBe(true);
  });

  it('a redirect is not followed', async () => {
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

  it('an untrusted certificate, or one for another name', async () => {
    const secure = (name: 'server' | 'elsewhere') =>
      createSecureServer(
        serverCertificate(name),
        afterRequest((_request, response) => response.end()),
      );
    const endpoint = `https://localhost:${await listen(secure('server'))}`;
    const authorities = parseCertificates(authorityFile);
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
      afterRequest(({ method, url: path, headers }, response) => {
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
    ['contain the bucket in the path', at('127.0.0.1'), {}, '127.0.0.1:PORT /bucket/a/b/k%20e/y'],
    [
      'contain the bucket after a path of the endpoint',
      (port) => `http://127.0.0.1:${port}/s3/`,
      {},
      '127.0.0.1:PORT /s3/bucket/a/b/k%20e/y',
    ],
    [
      'contain the bucket in the path if configured',
      at('localhost'),
      { addressingStyle: 'path' },
      'localhost:PORT /bucket/a/b/k%20e/y',
    ],
    [
      'use an endpoint that contains the bucket unchanged',
      at('localhost'),
      { isBucketInEndpoint: true },
      'localhost:PORT /a/b/k%20e/y',
    ],
    [
      'use such an endpoint with a path, a trailing slash, and no configured bucket',
      (port) => `http://localhost:${port}/its/bucket/`,
      { isBucketInEndpoint: true, bucket: undefined },
      'localhost:PORT /its/bucket/a/b/k%20e/y',
    ],
  ];
  it.each(cases)('%s', async (_what, endpoint, options, expected) => {
    expect(await seen(endpoint, options)).toEqual([`PUT ${expected}?x-id=PutObject`]);
  });

  it('contain the bucket in the host if configured', async () => {
    await expect(
      seen(at('localhost'), { addressingStyle: 'virtual', limits: { ...limits, attempts: 1 } }),
    ).rejects.toThrow(/cannot be resolved/);
  });

  it('are ended by close', async () => {
    const store = open(await raw(() => undefined), { limits: {} });
    const put = store.put('key', Buffer.from('x')).catch((error) => error);
    await store.close();
    expect(await put).toMatchObject({ code: 'DESTINATION_UNAVAILABLE' });
  });

  it('report missing credentials', async () => {
    const before = { ...process.env };
    Object.assign(process.env, { AWS_EC2_METADATA_DISABLED: 'true', HOME: '/nonexistent', AWS_PROFILE: '' });
    for (const name of ['AWS_ACCESS_KEY_ID', 'AWS_SECRET_ACCESS_KEY', 'AWS_SESSION_TOKEN', 'AWS_PROFILE']) {
      delete process.env[name];
    }
    onTestFinished(() => {
      process.env = before;
    });
    expect(await checked(await page(200), { credentials: undefined })).toMatchObject({
      code: 'DESTINATION_ACCESS_DENIED',
      message: expect.stringContaining('no credentials'),
    });
    Object.assign(process.env, { AWS_ACCESS_KEY_ID: 'env', AWS_SECRET_ACCESS_KEY: 'env' });
    // With credentials from the environment, the request would reach the page.
    expect(await checked(await page(200), { credentials: undefined })).toMatchObject(invalid);
  });
});

describe('a store that completes an upload with', () => {
  const xml = (body: string) => `<?xml version="1.0" encoding="UTF-8"?>\n${body}`;
  const failed = xml('<Error><Code>InternalError</Code><Message>We encountered an internal error.</Message></Error>');
  const result = '<CompleteMultipartUploadResult><ETag>&quot;1-2&quot;</ETag></CompleteMultipartUploadResult>';

  /** Uploads a file in parts to a store that denies reading, so that nothing else shows whether the object is there. */
  async function uploadTo(completion: string): Promise<unknown> {
    const endpoint = await web(
      afterRequest(({ method, url = '' }, response) => {
        response.setHeader('content-type', 'application/xml').setHeader('x-amz-request-id', '1');
        if (method === 'PUT') return void response.setHeader('etag', '"1"').end();
        if (method !== 'POST') return void response.writeHead(method === 'DELETE' ? 204 : 403).end();
        if (!url.includes('uploadId=')) {
          const created = '<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>';
          return void response.end(xml(created));
        }
        response.end(completion);
      }),
    );
    const folder = await mkdtemp(join(tmpdir(), 'runlake-upload-'));
    cleanUps.push(() => rm(folder, { recursive: true }));
    const path = join(folder, 'file');
    await writeFile(path, Buffer.alloc(17 * 1024 * 1024));
    return open(endpoint).upload('key', path);
  }

  it('a result has the object', async () => {
    await expect(uploadTo(xml(result))).resolves.toMatchObject({ bytes: 17 * 1024 * 1024 });
  });

  it.each([
    ['an error', failed],
    ['an error and a line end', `${failed}\n`],
    ['spaces and an error', `  \n ${failed.replace(/^[^\n]*\n/, '')} `],
  ])('%s after the status 200 does not have it', async (_what, completion) => {
    const error = await uploadTo(completion).catch((thrown) => thrown);
    expect(error).toMatchObject(unavailable);
  });
});
