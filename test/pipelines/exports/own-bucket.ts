import { createHash, randomBytes } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import {
  CreateBucketCommand,
  DeleteBucketCommand,
  DeleteBucketPolicyCommand,
  GetObjectCommand,
  PutBucketPolicyCommand,
} from '@aws-sdk/client-s3';
import { expect } from 'vitest';
import { createDestination } from '../../../pipelines/exports/destinations/write-destination.ts';
import type { StackS3 } from '../../infra/objects/s3/s3-of-stack.ts';
import { openStoreProxy } from '../../infra/objects/s3/way-to-store.ts';
import { rowsOf } from './exporting.ts';
import { day, type ExportsUnderTest } from './exports-under-test.ts';

const at = day('2026-03-05');
const MIB = 1024 ** 2;
/**
 * Rows per chunk. The second of the three resulting files is uploaded in three parts, each of the other files in a
 * single PUT.
 */
export const rowsPerChunk = 4;
const runs = 9;
const files = 3;
const isLarge = (index: number) => Math.floor(index / rowsPerChunk) === 1;

/**
 * Returns a pattern for requests for one file of an export: `PUT` of the file or of a part (`partNumber`); `POST` to
 * begin or complete the file.
 */
export const requests = (method: string, part: number, query = '') =>
  new RegExp(`^${method} .*-0*${part}\\.parquet\\?.*${query}`);
/**
 * A request at which the second file is half-way: one of its parts is stored, or about to be stored, and others are
 * not.
 */
export const secondFileRequest = requests('PUT', 2, 'partNumber=2');

/** Creates a bucket in the stack's store for the exports of one suite, and a proxy in front of it. */
export async function openDedicatedBucket(s3: StackS3, shop: ExportsUnderTest) {
  const name = `${s3.passingBucket}-${randomBytes(6).toString('hex')}`;
  const way = await openStoreProxy(s3.endpoint);
  // The bucket may already exist again, because parts were in flight when it was deleted.
  const make = () =>
    s3.admin.send(new CreateBucketCommand({ Bucket: name })).catch((error) => {
      if (error.name !== 'BucketAlreadyOwnedByYou') throw error;
    });
  const remove = () => s3.admin.send(new DeleteBucketCommand({ Bucket: name }));
  await make();
  const { accessKeyId, secretAccessKey } = s3.credentials('guest');
  const { id: destinationId } = await createDestination(shop.destinations, shop.workspaceId, {
    type: 's3',
    displayName: 'bucket',
    config: { bucket_name: name, prefix: 'made/by tests', endpoint_url: way.endpoint },
    credentials: { access_key_id: accessKeyId, secret_access_key: secretAccessKey },
  });
  const ids = await shop.store(runs, at, undefined, (index) => ({
    inputs: Buffer.from(JSON.stringify({ noise: randomBytes(isLarge(index) ? 3.3 * MIB : 10).toString('base64') })),
  }));

  /** Returns the keys of the objects of an export, without its manifest. */
  const keysOf = async (exportId: string) =>
    (await s3.objects(name)).filter((key) => key.includes(exportId) && !key.endsWith('_manifest.json'));

  async function body(key: string): Promise<Buffer> {
    const { Body } = await s3.admin.send(new GetObjectCommand({ Bucket: name, Key: key }));
    return Buffer.from((await Body?.transformToByteArray()) ?? []);
  }

  /**
   * Returns the files of an export in the bucket. Checks that each file is complete and matches its record, and that
   * there are no other files.
   */
  async function readFiles(exportId: string): Promise<{ part: number; sha256: string; body: Buffer }[]> {
    const found = [];
    const recorded = await shop.recorded(exportId);
    expect((await keysOf(exportId)).sort()).toEqual(recorded.map(({ path }) => path.slice(name.length + 1)).sort());
    for (const { part, path, bytes, sha256 } of recorded) {
      const content = await body(path.slice(name.length + 1));
      expect([content.length, createHash('sha256').update(content).digest('hex')]).toEqual([bytes, sha256]);
      found.push({ part, sha256, body: content });
    }
    return found;
  }

  let undisturbed: { part: number; sha256: string }[] = [];
  const create = (days = 1) =>
    shop.create({
      destinationId,
      endTimeMicros: at + days * 86_400_000_000,
      compression: 'none',
      exportFields: ['id', 'inputs'],
    });

  return {
    name,
    way,
    destinationId,
    make,
    remove,
    create,
    filesOf: readFiles,
    /** Returns the parsed manifest of an export. */
    manifest: async (exportId: string): Promise<unknown> => {
      const key = (await s3.objects(name)).find((each) => each.includes(exportId) && each.endsWith('_manifest.json'));
      return JSON.parse((await body(key ?? '')).toString());
    },
    /** Returns the keys of the multipart uploads of an export that are not complete. */
    uploads: async (exportId: string) => (await s3.uploads(name)).filter((key) => key.includes(exportId)),

    /** Denies actions to all identities until `allow` is called. */
    deny: (...actions: string[]) =>
      s3.admin.send(
        new PutBucketPolicyCommand({
          Bucket: name,
          Policy: JSON.stringify({
            Version: '2012-10-17',
            Statement: [
              {
                Effect: 'Deny',
                Principal: '*',
                Action: actions,
                Resource: [`arn:aws:s3:::${name}`, `arn:aws:s3:::${name}/*`],
              },
            ],
          }),
        }),
      ),
    allow: () => s3.admin.send(new DeleteBucketPolicyCommand({ Bucket: name })),

    /** Creates the reference export that {@link expectWhole} compares with, and reads its rows. */
    async exportUndisturbed(): Promise<void> {
      const { id } = await create();
      await shop.work();
      const found = await readFiles(id);
      const read: unknown[] = [];
      for (const { part, body: content } of found) {
        const path = join(shop.bucketRoot, `${part}.parquet`);
        await writeFile(path, content);
        read.push(...(await rowsOf(path)).map((row) => row.id));
      }
      expect(read).toEqual(ids);
      expect(found).toHaveLength(files);
      undisturbed = found.map(({ part, sha256 }) => ({ part, sha256 }));
    },

    /**
     * Checks that the export equals the undisturbed one: every file exists once and is complete, and there is a
     * manifest.
     */
    async expectWhole(exportId: string): Promise<void> {
      expect(await shop.read(exportId)).toMatchObject({
        status: 'COMPLETED',
        rowsWritten: runs,
        files,
        manifestAt: expect.any(String),
      });
      const found = await readFiles(exportId);
      expect(found.map(({ part, sha256 }) => ({ part, sha256 }))).toEqual(undisturbed);
      expect((await s3.objects(name)).filter((key) => key.includes(exportId))).toHaveLength(files + 1);
    },

    /** Checks that a report contains neither credentials nor values derived from them. */
    expectNoSecrets(reported: unknown): void {
      const text = JSON.stringify(reported);
      for (const secret of [accessKeyId, secretAccessKey, 'Signature', 'X-Amz', 'Credential=']) {
        expect(text).not.toContain(secret);
      }
    },

    async close(): Promise<void> {
      await way.close();
      await remove().catch(() => undefined);
    },
  };
}
