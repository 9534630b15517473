/** Files of an export that disappear before its manifest is written, and late writers, on a real object store. */
import { randomBytes } from 'node:crypto';
import { truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DeleteObjectCommand, PutObjectCommand } from '@aws-sdk/client-s3';
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { sweepExports } from '../../../pipelines/exports/scheduler.ts';
import { forSuite } from '../../for-suite.ts';
import { findStackS3, type StackS3 } from '../../infra/objects/s3/s3-of-stack.ts';
import { openExportsUnderTest } from './exports-under-test.ts';
import { openDedicatedBucket, requests, rowsPerChunk } from './own-bucket.ts';

vi.setConfig({ testTimeout: 120_000, hookTimeout: 120_000 });

const stack = findStackS3();

describe.runIf(stack)('before the manifest is written', () => {
  const s3 = stack as StackS3;
  afterAll(() => s3.close());
  const shop = forSuite(() => openExportsUnderTest({ exportsPerWorkspace: 1_000, exportSliceRows: rowsPerChunk }));
  const bucket = forSuite(() => openDedicatedBucket(s3, shop));
  beforeAll(() => bucket.exportUndisturbed());
  beforeEach(() => bucket.way.clear());

  const keyOf = async (exportId: string, part: number) => {
    const found = (await shop.recorded(exportId)).find((file) => file.part === part);
    return found?.path.slice(bucket.name.length + 1) as string;
  };
  /** Calls `strike` when two files are recorded and the third one has just been uploaded. */
  async function runExportWithInjection(inject: (exportId: string) => Promise<void>): Promise<string> {
    const { id } = await bucket.create();
    bucket.way.whenAnswered(requests('PUT', 3), () => inject(id));
    await shop.work();
    return id;
  }
  async function expectFailed(exportId: string, reason: RegExp) {
    const cause = expect.stringMatching(reason);
    expect(await shop.read(exportId)).toMatchObject({ status: 'FAILED', statusReason: cause, manifestAt: null });
    const [run] = await shop.runs(exportId);
    expect(run).toMatchObject({ status: 'COMPLETED', errors: { retry_0: cause } });
    expect((await s3.objects(bucket.name)).filter((key) => key.includes(exportId) && key.endsWith('.json'))).toEqual(
      [],
    );
    // The failed export is not retried.
    await sweepExports(shop.deps);
    expect(await shop.read(exportId)).toMatchObject({ status: 'FAILED' });
  }

  it('a deleted file fails the export, and the error names the cause', async () => {
    const id = await runExportWithInjection(async (exportId) => {
      await s3.admin.send(new DeleteObjectCommand({ Bucket: bucket.name, Key: await keyOf(exportId, 1) }));
    });
    await expectFailed(
      id,
      /changed or deleted in the destination.*: it is missing .*-000001\.parquet.*create a new export/,
    );
  });

  it('so does a bucket that was emptied, deleted and recreated during the last upload', async () => {
    const { id } = await bucket.create();
    bucket.way.when(requests('PUT', 3), async () => {
      bucket.way.clear();
      for (const Key of await s3.objects(bucket.name))
        await s3.admin.send(new DeleteObjectCommand({ Bucket: bucket.name, Key }));
      await bucket.remove();
      await bucket.make();
    });
    await shop.work();
    await expectFailed(id, /changed or deleted in the destination.*: it is missing .*-00000[12]\.parquet/);
  });

  it('so does a file with other content', async () => {
    const id = await runExportWithInjection(async (exportId) => {
      const [file] = await shop.recorded(exportId);
      const Key = await keyOf(exportId, 1);
      await s3.admin.send(new PutObjectCommand({ Bucket: bucket.name, Key, Body: randomBytes(file?.bytes ?? 0) }));
    });
    await expectFailed(id, /it has other content/);
  });

  it('files are not checked without read permission, and the manifest says so', async () => {
    await bucket.deny('s3:GetObject');
    const { id } = await bucket.create();
    await shop.work().finally(() => bucket.allow());
    expect(await shop.read(id)).toMatchObject({ status: 'COMPLETED' });
    expect(await bucket.manifest(id)).toMatchObject({ unchecked_files: 3 });
  });

  it('all files are checked with read permission, and an interrupted check resumes', async () => {
    const { id } = await bucket.create();
    bucket.way.when(/^PUT .*_manifest\.json/, () => bucket.way.away(true));
    await shop.work().catch(() => undefined);
    expect(await shop.read(id)).toMatchObject({ status: 'RUNNING' });
    const checked = () =>
      shop.database.query(
        `SELECT checked_at FROM bulk_export_files JOIN bulk_export_runs ON id = bulk_export_run_id
         WHERE bulk_export_id = $1 AND checked_at IS NOT NULL`,
        [id],
      );
    const before = await checked();
    expect(before).toHaveLength(3);
    bucket.way.clear();
    await sweepExports(shop.deps);
    expect(await shop.read(id)).toMatchObject({ status: 'COMPLETED' });
    expect(await checked()).toEqual(before);
    expect(await bucket.manifest(id)).toMatchObject({ unchecked_files: 0 });
  });

  it.each([
    ['a small file', 0, /^PUT .*late/],
    ['a file that is uploaded in parts', 17 * 1024 ** 2, /^POST .*late.*uploadId/],
  ])('a stalled writer of %s does not overwrite the file of its successor', async (_what, bytes, request) => {
    const store = await shop.deps.openStore({ workspaceId: shop.workspaceId, destinationId: bucket.destinationId });
    const other = await shop.deps.openStore({ workspaceId: shop.workspaceId, destinationId: bucket.destinationId });
    const path = (text: string) => {
      const file = join(shop.workRoot, `${randomBytes(6).toString('hex')}.parquet`);
      writeFileSync(file, text);
      truncateSync(file, Math.max(bytes, text.length));
      return file;
    };
    onTestFinished(async () => {
      await store.close();
      await other.close();
    });
    const key = `late/${randomBytes(6).toString('hex')}.parquet`;
    const readStart = async (length: number) => (await other.get(key, { maxBytes: length })).toString();
    // The test holds this request while another worker writes.
    bucket.way.when(request, async () => {
      bucket.way.clear();
      await other.upload(key, path('of the one that came after it'), { confirmReplace: async () => undefined });
    });
    const confirmReplace = async () => {
      throw runlakeError('EXPORT_ATTEMPT_OVER');
    };
    await expect(store.upload(key, path('of the stalled one'), { confirmReplace })).rejects.toMatchObject({
      code: 'EXPORT_ATTEMPT_OVER',
    });
    expect(await readStart(29)).toBe('of the one that came after it');
    await other.upload(key, path('again'), { confirmReplace: async () => undefined });
    expect(await readStart(5)).toBe('again');
  });
});
