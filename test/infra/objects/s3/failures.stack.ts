import { randomBytes, randomUUID } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { inspect } from 'node:util';
import {
  CreateBucketCommand,
  CreateMultipartUploadCommand,
  DeleteBucketCommand,
  DeleteObjectCommand,
  ListBucketsCommand,
  PutObjectCommand,
} from '@aws-sdk/client-s3';
import { afterAll, afterEach, describe, expect, it } from 'vitest';
import type { ObjectStore } from '../../../../infra/objects/object-store.ts';
import type { S3Options } from '../../../../infra/objects/s3/s3-connection.ts';
import { checkDestination } from '../../../../pipelines/exports/destinations/check-destination.ts';
import { folderForSuite } from '../../../folders.ts';
import { openTcpProxy, type TcpProxy } from '../../tcp-proxy.ts';
import { openFaultyStore } from './faulty-store.ts';
import { findStackS3, type StackS3 } from './s3-of-stack.ts';

const stack = findStackS3();
const MIB = 1024 ** 2;
const small = 3 * MIB;
const large = 20 * MIB;

describe.runIf(stack)('a bucket that fails', () => {
  const s3 = stack as StackS3;
  const cleanUps: (() => Promise<unknown>)[] = [];
  const folder = folderForSuite();
  /** Prefix of all objects of a test. */
  let prefix: string;
  afterAll(async () => {
    await s3.close();
  });
  afterEach(async () => {
    for (const cleanUp of cleanUps.splice(0).reverse()) await cleanUp();
  });

  function open(options: Partial<S3Options> = {}): ObjectStore {
    prefix = `failures/${randomUUID()}`;
    const store = s3.open({ prefix, ...options });
    cleanUps.push(() => store.close());
    return store;
  }
  async function openFaultyProxy(decide: Parameters<typeof openFaultyStore>[1]) {
    const proxy = await openFaultyStore(s3.endpoint, decide);
    cleanUps.push(() => proxy.close());
    return proxy;
  }
  async function tcp(): Promise<TcpProxy & { endpoint: string }> {
    const { hostname, port } = new URL(s3.endpoint);
    const proxy = await openTcpProxy(hostname, Number(port));
    cleanUps.push(() => proxy.close());
    return { ...proxy, endpoint: `http://127.0.0.1:${proxy.port}` };
  }
  const file = (bytes: number) => {
    const path = join(folder, randomUUID());
    writeFileSync(path, randomBytes(bytes));
    return path;
  };
  const remaining = async () => (await s3.names()).filter((name) => name.startsWith(prefix));
  /** Returns the error of `work`, and checks that the error contains no secret. */
  async function errorOf(work: Promise<unknown>): Promise<Record<string, unknown>> {
    const error = await work.then(
      () => ({ code: 'none' }),
      (thrown) => thrown,
    );
    const text = inspect(error, { depth: 12, showHidden: true }) + JSON.stringify(error) + String(error);
    for (const identity of ['admin', 'writer', 'reader', 'dropper', 'guest'] as const) {
      const { accessKeyId, secretAccessKey } = s3.credentials(identity);
      expect(text).not.toContain(secretAccessKey);
      expect(String(error)).not.toContain(accessKeyId);
    }
    return error;
  }

  const table: readonly (readonly [string, () => Partial<S3Options>, Record<string, unknown>])[] = [
    [
      'a bucket that does not exist',
      () => ({ bucket: 'no-such-bucket', credentials: s3.credentials('admin') }),
      {
        code: 'DESTINATION_BUCKET_NOT_VALID',
        message: expect.stringMatching(/^Bucket is not valid: .*\(step reach, /),
      },
    ],
    [
      'a bucket that does not exist, in the endpoint',
      () => ({
        endpointUrl: `${s3.endpoint}/no-such-bucket`,
        isBucketInEndpoint: true,
        credentials: s3.credentials('admin'),
      }),
      { code: 'DESTINATION_BUCKET_NOT_VALID' },
    ],
    [
      'a read-only key',
      () => ({ credentials: s3.credentials('reader') }),
      { code: 'DESTINATION_ACCESS_DENIED', message: expect.stringMatching(/^Access denied: .*\(step write, runs\//) },
    ],
    [
      'a key for another bucket',
      () => ({ credentials: s3.credentials('guest') }),
      { code: 'DESTINATION_ACCESS_DENIED', message: expect.stringContaining('step write') },
    ],
    [
      'an unknown key',
      () => ({ credentials: { accessKeyId: 'AKIAIOSFODNN7EXAMPLE', secretAccessKey: 'secret' } }),
      { code: 'DESTINATION_KEY_UNKNOWN', message: expect.stringMatching(/^Key ID you provided does not exist/) },
    ],
    [
      'a wrong secret',
      () => ({ credentials: { ...s3.credentials('writer'), secretAccessKey: 'not the secret' } }),
      { code: 'DESTINATION_ACCESS_DENIED', message: expect.stringContaining('does not match') },
    ],
    [
      'an invalid session token',
      () => ({ credentials: { ...s3.credentials('writer'), sessionToken: 'expired long ago' } }),
      { code: expect.stringMatching(/^DESTINATION_(ACCESS_DENIED|KEY_UNKNOWN)$/) },
    ],
    [
      'https for a server without TLS',
      () => ({ endpointUrl: s3.endpoint.replace('http:', 'https:') }),
      {
        code: 'DESTINATION_ENDPOINT_INVALID',
        message: expect.stringMatching(/^Invalid endpoint: .*does not speak TLS/),
      },
    ],
    [
      'a private address that is not allowed',
      () => ({ allowPrivateEndpoints: false }),
      {
        code: 'DESTINATION_ENDPOINT_NOT_ALLOWED',
        message: expect.stringMatching(/^Invalid endpoint: 127\.0\.0\.1 is /),
      },
    ],
  ];

  it.each(table)('%s', async (_what, options, expected) => {
    const error = await errorOf(checkDestination(open(options())));
    expect(error).toMatchObject({
      class: 'caller',
      status: 400,
      remedy: expect.any(String),
      ...expected,
    });
    expect(await remaining()).toEqual([]);
  });

  it('does not create a bucket', async () => {
    await errorOf(checkDestination(open({ bucket: 'never-made', credentials: s3.credentials('admin') })));
    const { Buckets = [] } = await s3.admin.send(new ListBucketsCommand({}));
    expect(Buckets.map(({ Name }) => Name)).not.toContain('never-made');
  });

  it('passes the check with all permissions, with the bucket in the path or the endpoint, and leaves nothing', async () => {
    const passed = ['reach', 'write', 'read', 'delete'].map((step) => ({ step, outcome: 'passed' }));
    expect(await checkDestination(open())).toEqual(passed);
    expect(await remaining()).toEqual([]);
    expect(
      await checkDestination(
        open({ endpointUrl: `${s3.endpoint}/${s3.bucket}/`, isBucketInEndpoint: true, bucket: undefined }),
      ),
    ).toEqual(passed);
    expect(await remaining()).toEqual([]);
  });

  it('needs only write permission', async () => {
    const proxy = await openFaultyProxy(({ method }) =>
      method === 'PUT' || method === 'POST' ? undefined : { status: 403, code: 'AccessDenied' },
    );
    const store = open({ endpointUrl: proxy.endpoint, credentials: s3.credentials('dropper') });
    expect((await checkDestination(store)).map(({ outcome }) => outcome)).toEqual([
      'passed',
      'passed',
      'forbidden',
      'forbidden',
    ]);
    for (const bytes of [small, large]) {
      expect((await store.upload(`file-${bytes}`, file(bytes))).bytes).toBe(bytes);
    }
    // An upload that cannot be aborted remains, and the reported error is still the original one.
    const controller = new AbortController();
    const upload = store.upload('given-up', file(large), {
      signal: controller.signal,
      onProgress: () => controller.abort(new Error('given up')),
    });
    await expect(upload).rejects.toThrow('given up');
    expect((await remaining()).filter((name) => name.endsWith('given-up')).length).toBe(1);
    await store.abortUploads('given-up', ['some id']);
    expect((await remaining()).length).toBe(4);
  });

  it('is reported if it is deleted during an upload', async () => {
    await s3.admin.send(new CreateBucketCommand({ Bucket: s3.passingBucket }));
    cleanUps.push(() => s3.admin.send(new DeleteBucketCommand({ Bucket: s3.passingBucket })).catch(() => undefined));
    const store = open({ bucket: s3.passingBucket, credentials: s3.credentials('guest') });
    await checkDestination(store);
    const upload = store.upload('object', file(large), {
      recordUpload: async () => void (await s3.admin.send(new DeleteBucketCommand({ Bucket: s3.passingBucket }))),
    });
    expect(await errorOf(upload)).toMatchObject({ code: 'DESTINATION_BUCKET_NOT_VALID', class: 'caller' });
    expect(await errorOf(store.put('object', Buffer.from('x')))).toMatchObject({ class: 'caller' });
    expect(await errorOf(checkDestination(store))).toMatchObject({ code: 'DESTINATION_BUCKET_NOT_VALID' });
  });

  it.each([
    [501, 'NotImplemented'],
    [400, 'InvalidArgument'],
  ])('files are uploaded without conditions if the store refuses these with %d', async (status, code) => {
    const proxy = await openFaultyProxy(({ headers }) =>
      headers['if-none-match'] === undefined && headers['if-match'] === undefined ? undefined : { status, code },
    );
    const store = open({ endpointUrl: proxy.endpoint });
    for (const bytes of [small, large]) {
      expect((await store.upload(`file-${bytes}`, file(bytes))).bytes).toBe(bytes);
      expect((await store.upload(`file-${bytes}`, file(bytes + 1))).bytes).toBe(bytes + 1);
    }
    expect(await remaining()).toHaveLength(2);
  });

  it.each(['RequestTimeout', 'IncompleteBody', 'BadDigest', 'XAmzContentSHA256Mismatch'])(
    'files are not uploaded without conditions if conditional writes fail with %s',
    async (code) => {
      const proxy = await openFaultyProxy(({ headers }) =>
        headers['if-none-match'] === undefined ? undefined : { status: 400, code },
      );
      const store = open({ endpointUrl: proxy.endpoint });
      for (const bytes of [small, large]) {
        expect(await errorOf(store.upload('object', file(bytes)))).toMatchObject({
          code: 'DESTINATION_UNAVAILABLE',
          class: 'transient',
        });
      }
      expect(await remaining()).toEqual([]);
    },
  );

  it('is retried after a few refusals', async () => {
    const proxy = await openFaultyProxy((_request, count) =>
      count % 3 === 0 ? { status: 503, code: 'SlowDown' } : undefined,
    );
    const store = open({ endpointUrl: proxy.endpoint });
    expect((await store.upload('large', file(large))).bytes).toBe(large);
    await store.put('small', Buffer.from('x'));
    expect((await store.get('small', { maxBytes: 9 })).toString()).toBe('x');
    expect(await remaining()).toHaveLength(2);
  });

  it.each([
    ['503', 503, 'SlowDown'],
    ['500', 500, 'InternalError'],
    ['429', 429, 'TooManyRequests'],
    ['502 of a gateway', 502, ''],
  ])('is unavailable after repeated %s, and no upload remains', async (_what, status, code) => {
    let storm = false;
    const proxy = await openFaultyProxy(({ method }) => (storm && method === 'PUT' ? { status, code } : undefined));
    const store = open({ endpointUrl: proxy.endpoint });
    const recordUpload = async () => {
      storm = true;
    };
    for (const bytes of [small, large]) {
      storm = bytes === small;
      const upload = store.upload('object', file(bytes), { recordUpload });
      expect(await errorOf(upload)).toMatchObject({
        code: 'DESTINATION_UNAVAILABLE',
        class: 'transient',
        message: expect.stringContaining(String(status)),
      });
    }
    expect(await remaining()).toEqual([]);
  });

  it('is retried after broken connections, and unavailable if all break', async () => {
    const proxy = await tcp();
    const store = open({ endpointUrl: proxy.endpoint, limits: { attempts: 3 } });
    let broken = 0;
    const upload = store.upload('large', file(large), {
      recordUpload: async () => proxy.breakAll(),
      onProgress: () => {
        if (broken++ === 0) proxy.breakAll();
      },
    });
    expect((await upload).bytes).toBe(large);
    proxy.breakAfter(5 * MIB);
    expect(await errorOf(store.upload('lost', file(large)))).toMatchObject({
      code: 'DESTINATION_UNAVAILABLE',
      class: 'transient',
    });
    await expect(s3.open({ prefix }).get('lost', { maxBytes: 1 })).rejects.toMatchObject({
      code: 'DESTINATION_OBJECT_MISSING',
    });
  });

  it('completes a large upload whose response was lost, at once or on the next attempt', async () => {
    const proxy = await tcp();
    const store = open({ endpointUrl: proxy.endpoint });
    proxy.dropResponseTo('CompleteMultipartUpload');
    const first = await errorOf(store.upload('large', file(large)));
    if (first.code !== 'none') expect(first).toMatchObject({ code: 'DESTINATION_UNAVAILABLE', class: 'transient' });
    expect((await store.upload('large', file(large))).bytes).toBe(large);
    expect(await remaining()).toHaveLength(1);
  });

  it('restarts an upload whose first response was lost, and leaves one object', async () => {
    const proxy = await tcp();
    const store = open({ endpointUrl: proxy.endpoint });
    proxy.dropResponseTo('?uploads');
    expect((await store.upload('large', file(large))).bytes).toBe(large);
    expect(await remaining()).toEqual([`${prefix}/large`]);
  });

  it('aborts uploads to an object by key if their ids are unknown, and no others', async () => {
    const store = open();
    for (const name of ['object', 'object', 'object-2', 'object/3']) {
      await s3.admin.send(new CreateMultipartUploadCommand({ Bucket: s3.bucket, Key: `${prefix}/${name}` }));
    }
    await store.abortUploads('object', []);
    expect((await remaining()).sort()).toEqual([`${prefix}/object-2`, `${prefix}/object/3`]);
    for (const name of ['object-2', 'object/3']) await store.abortUploads(name, []);
    expect(await remaining()).toEqual([]);
  });

  it('that hangs is unavailable in bounded time, and an upload ends at once when its signal is aborted', async () => {
    const proxy = await tcp();
    const limits = { attempts: 2, idleTimeoutMs: 300, callTimeoutMs: 1_000 };
    const store = open({ endpointUrl: proxy.endpoint, limits });
    proxy.freeze(true);
    const startMs = performance.now();
    expect(await errorOf(checkDestination(store))).toMatchObject({
      code: 'DESTINATION_UNAVAILABLE',
      class: 'transient',
    });
    expect(performance.now() - startMs).toBeLessThan(3_000);

    const withDefaultLimits = open({ endpointUrl: proxy.endpoint });
    for (const bytes of [small, large]) {
      const controller = new AbortController();
      const before = proxy.sent().length;
      const upload = withDefaultLimits.upload('object', file(bytes), { signal: controller.signal });
      const ended = upload.then(
        () => 'ended',
        (error) => error.message,
      );
      await expect.poll(() => proxy.sent().length).toBeGreaterThan(before);
      const abortedMs = performance.now();
      controller.abort(new Error('cancelled'));
      expect(await ended).toBe('cancelled');
      expect(performance.now() - abortedMs).toBeLessThan(1_500);
    }
  });

  it('is asked for the size of each uploaded object', async () => {
    const proxy = await openFaultyProxy(() => undefined);
    const store = open({ endpointUrl: proxy.endpoint });
    for (const bytes of [small, large]) await store.upload(`file-${bytes}`, file(bytes));
    expect(proxy.seen.filter((line) => line.startsWith('HEAD'))).toHaveLength(2);
  });

  const location = () => ({ Bucket: s3.bucket, Key: `${prefix}/object` });
  it.each([
    [
      'has an object of another size, because another client wrote it',
      () => new PutObjectCommand({ ...location(), Body: 'other' }),
      (bytes: number) => `it has 5 bytes, but ${bytes} were sent`,
    ],
    [
      'has no object, because another client deleted it',
      () => new DeleteObjectCommand(location()),
      () => 'it is not there',
    ],
  ] as const)('%s', async (_what, interfere, reason) => {
    const proxy = await openFaultyProxy(async ({ method }) => {
      if (method === 'HEAD') await s3.admin.send(interfere() as PutObjectCommand);
      return undefined;
    });
    const store = open({ endpointUrl: proxy.endpoint });
    for (const bytes of [small, large]) {
      expect(await errorOf(store.upload('object', file(bytes)))).toMatchObject({
        code: 'DESTINATION_OBJECT_DAMAGED',
        class: 'transient',
        message: expect.stringContaining(reason(bytes)),
      });
    }
  });
});
