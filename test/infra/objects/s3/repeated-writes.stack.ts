/** What a worker finds that repeats the upload of another one: its multipart uploads, and an object that disappears. */
import { randomBytes, randomUUID } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { CreateMultipartUploadCommand, DeleteObjectCommand } from '@aws-sdk/client-s3';
import { afterAll, afterEach, describe, expect, it } from 'vitest';
import type { ObjectStore } from '../../../../infra/objects/object-store.ts';
import { folderForSuite } from '../../../folders.ts';
import { openFaultyStore } from './faulty-store.ts';
import { findStackS3, type StackS3 } from './s3-of-stack.ts';

const stack = findStackS3();
const MIB = 1024 ** 2;

describe.runIf(stack)('a repeated upload', () => {
  const s3 = stack as StackS3;
  const cleanUps: (() => Promise<unknown>)[] = [];
  const folder = folderForSuite();
  let prefix: string;
  afterAll(async () => {
    await s3.close();
  });
  afterEach(async () => {
    for (const cleanUp of cleanUps.splice(0).reverse()) await cleanUp();
  });

  async function open(decide: Parameters<typeof openFaultyStore>[1]): Promise<ObjectStore> {
    const proxy = await openFaultyStore(s3.endpoint, decide);
    prefix = `repeated/${randomUUID()}`;
    const store = s3.open({ prefix, endpointUrl: proxy.endpoint });
    cleanUps.push(
      () => proxy.close(),
      () => store.close(),
    );
    return store;
  }
  const file = (bytes: number) => {
    const path = join(folder, randomUUID());
    writeFileSync(path, randomBytes(bytes));
    return path;
  };
  const uploads = async () => (await s3.uploads()).filter((name) => name.startsWith(prefix));

  it.each(['DELETE', 'GET'])(
    'does not begin before earlier uploads are aborted, if %s fails for a time',
    async (method) => {
      let fails = true;
      const store = await open((request) =>
        fails && request.method === method ? { status: 503, code: 'SlowDown' } : undefined,
      );
      await s3.admin.send(new CreateMultipartUploadCommand({ Bucket: s3.bucket, Key: `${prefix}/object` }));
      const error = { code: 'DESTINATION_UNAVAILABLE', class: 'transient' };
      await expect(store.abortUploads('object', [])).rejects.toMatchObject(error);
      expect(await uploads()).toHaveLength(1);
      fails = false;
      await store.abortUploads('object', []);
      expect(await uploads()).toEqual([]);
    },
  );

  it('begins if an earlier upload has ended', async () => {
    // As S3 answers: AbortMultipartUpload, in its API reference.
    const store = await open(({ method }) => (method === 'DELETE' ? { status: 404, code: 'NoSuchUpload' } : undefined));
    await store.abortUploads('object', ['ended']);
    expect((await store.upload('object', file(MIB))).bytes).toBe(MIB);
  });

  it.each([3 * MIB, 20 * MIB])(
    'of %d bytes succeeds if the existing object is deleted before it is replaced',
    async (bytes) => {
      let deletes = false;
      const store = await open(async ({ headers }) => {
        if (headers['if-match'] === undefined || !deletes) return undefined;
        deletes = false;
        await s3.admin.send(new DeleteObjectCommand({ Bucket: s3.bucket, Key: `${prefix}/object` }));
        // As S3 answers to a conditional write of an object that does not exist.
        return { status: 404, code: 'NoSuchKey' };
      });
      await store.upload('object', file(100));
      deletes = true;
      let confirmed = 0;
      const confirmReplace = async () => void confirmed++;
      expect((await store.upload('object', file(bytes), { confirmReplace })).bytes).toBe(bytes);
      expect([deletes, confirmed, await uploads()]).toEqual([false, 2, []]);
    },
  );
});
