/** Exports whose bucket fails during an upload, on a real object store. */
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { cancelExport } from '../../../pipelines/exports/create-cancel.ts';
import { sweepExports } from '../../../pipelines/exports/scheduler.ts';
import { forSuite } from '../../for-suite.ts';
import { pickSome } from '../../house/extent.ts';
import { deferred } from '../../infra/deferred.ts';
import { findStackS3, type StackS3 } from '../../infra/objects/s3/s3-of-stack.ts';
import type { StoreProxy } from '../../infra/objects/s3/way-to-store.ts';
import { until } from '../../infra/until.ts';
import { openExportsUnderTest } from './exports-under-test.ts';
import { openDedicatedBucket, requests, rowsPerChunk, secondFileRequest } from './own-bucket.ts';

const stack = findStackS3();

describe.runIf(stack)('an export whose bucket fails during an upload', () => {
  const s3 = stack as StackS3;
  afterAll(() => s3.close());
  const shop = forSuite(() =>
    openExportsUnderTest(
      { exportRetryDelayMs: 0, exportsPerWorkspace: 1_000, exportSliceRows: rowsPerChunk },
      // Timeout of a request without a response; a request with a response takes longer only on a very busy machine.
      { s3Limits: { attempts: 2, idleTimeoutMs: 2_000 } },
    ),
  );
  const bucket = forSuite(() => openDedicatedBucket(s3, shop));
  beforeAll(() => bucket.exportUndisturbed());
  afterEach(() => {
    bucket.way.clear();
    shop.jobs.length = 0;
  });

  async function started(days = 1) {
    const { id: exportId } = await bucket.create(days);
    await shop.start(exportId);
    return { exportId, runId: (await shop.firstRun(exportId)).id };
  }
  const seen = (exportId: string, recognises: RegExp) =>
    bucket.way.seen.filter((line) => line.includes(exportId) && recognises.test(line)).length;
  /** Holds the upload of the second file half-way until `goOn` is called. */
  function holdHalfWay() {
    const { promise: held, resolve: resume } = deferred();
    const arrived = new Promise<void>((resolve) =>
      bucket.way.when(secondFileRequest, () => {
        resolve();
        return held;
      }),
    );
    return { arrived, resume };
  }
  /** Checks that only the first file exists: it is finished, and the upload of the second file was in progress. */
  async function expectFirstFileOnly(exportId: string) {
    expect((await bucket.filesOf(exportId)).map(({ part }) => part)).toEqual([1]);
    expect(await shop.firstRun(exportId)).toMatchObject({ rowsWritten: rowsPerChunk, pendingUpload: null });
    expect(await shop.read(exportId)).toMatchObject({ files: 1, manifestAt: null });
  }

  const temporary: readonly (readonly [what: string, strike: (way: StoreProxy) => void, cause: RegExp])[] = [
    ['repeated 503 responses', (way) => way.storm({ status: 503, code: 'SlowDown' }), /the response was 503 SlowDown/],
    ['reset connections', (way) => way.away(true), /127\.0\.0\.1:\d+ cannot be reached/],
    // Requests that are in flight at the stall arrive long after the upload was aborted.
    ['a stalled network', (way) => way.stall(true), /127\.0\.0\.1:\d+/],
  ];
  it.each(pickSome(temporary, 1 / 3))(
    '%s: the export run is retried and continues after the last recorded file',
    async (_what, inject, cause) => {
      const { exportId, runId } = await started();
      bucket.way.when(secondFileRequest, () => inject(bucket.way));
      await shop.worker().attempt(runId);
      const failed = await shop.firstRun(exportId);
      expect(failed).toMatchObject({ status: 'RUNNING', retryNumber: 1 });
      expect(failed.errors).toEqual({
        retry_0: expect.stringMatching(
          /^The destination cannot be used at the moment: .* retry failed writes automatically\.$/,
        ),
      });
      expect(failed.errors?.retry_0).toMatch(cause);
      bucket.expectNoSecrets(failed);
      const before = await shop.recorded(exportId);
      expect(before.map(({ part }) => part)).toEqual([1]);
      bucket.way.clear();
      await shop.worker().attempt(runId);
      await bucket.expectWhole(exportId);
      expect((await shop.firstRun(exportId)).retryNumber).toBe(1);
      expect((await shop.recorded(exportId)).slice(0, 1)).toEqual(before);
      expect(seen(exportId, requests('PUT', 1))).toBe(1);
      expect(await bucket.uploads(exportId)).toEqual([]);
    },
  );

  it.each([
    ['the start of a multipart upload', requests('POST', 2, 'uploads')],
    ['the completion of a multipart upload', requests('POST', 2, 'uploadId')],
    ['a single upload', requests('PUT', 3)],
  ] as const)('a lost response to %s: no object is duplicated, and no upload is left', async (_what, recognises) => {
    const { exportId, runId } = await started();
    bucket.way.whenAnswered(recognises, () => {
      bucket.way.away(true);
      bucket.way.away(false);
    });
    await shop.worker().attempt(runId);
    // If the store no longer has this upload, the worker writes the file again.
    if ((await shop.firstRun(exportId)).retryNumber > 0) await shop.worker().attempt(runId);
    await bucket.expectWhole(exportId);
    expect(seen(exportId, requests('PUT', 1))).toBe(1);
    expect(await bucket.uploads(exportId)).toEqual([]);
  });

  interface PermanentFailure {
    readonly when?: RegExp;
    inject(): unknown;
    restore?(): unknown;
    readonly hasFiles?: false;
    readonly cause: RegExp;
  }
  const permanent: readonly (readonly [what: string, failure: PermanentFailure])[] = [
    [
      'a deleted bucket',
      {
        // During the storing of parts, the store may return a different error.
        when: requests('POST', 2, 'uploadId'),
        inject: () => bucket.remove(),
        restore: () => bucket.make(),
        hasFiles: false,
        cause: /^Bucket is not valid: there is no such bucket \(step upload, .* Create the bucket, /,
      },
    ],
    [
      'a key that lost its write permission',
      {
        inject: () => bucket.deny('s3:PutObject'),
        restore: () => bucket.allow(),
        cause: /^Access denied: the key has no permission for this operation \(step upload, .* Check the credentials, /,
      },
    ],
    [
      'an expired session token (simulated: real stores issue none for less than 15 minutes)',
      {
        inject: () => bucket.way.storm({ status: 400, code: 'ExpiredToken' }),
        cause: /^Access denied: the session token has expired \(step upload, /,
      },
    ],
  ];
  it.each(pickSome(permanent, 1 / 3))(
    '%s: the export run and its export fail at once, and the other runs are cancelled',
    async (_what, { when = secondFileRequest, inject, restore, hasFiles = true, cause }) => {
      const { exportId, runId } = await started(2);
      bucket.way.when(when, async () => void (await inject()));
      await shop.worker().attempt(runId);
      const run = await shop.firstRun(exportId);
      expect(run).toMatchObject({ status: 'FAILED', retryNumber: 0, finishedAt: expect.any(String) });
      expect(run.errors).toEqual({ retry_0: expect.stringMatching(cause) });
      const failed = await shop.read(exportId);
      expect(failed).toMatchObject({
        status: 'FAILED',
        statusReason: expect.stringContaining(run.errors?.retry_0 ?? '?'),
      });
      expect((await shop.runs(exportId))[1]).toMatchObject({ status: 'CANCELLED', fence: 0 });
      bucket.expectNoSecrets([run, failed]);
      expect((await shop.recorded(exportId)).map(({ part }) => part)).toEqual([1]);
      await restore?.();
      bucket.way.clear();
      if (hasFiles) await expectFirstFileOnly(exportId);
      // The failed export stays FAILED; a new export completes.
      await sweepExports(shop.deps);
      await shop.work();
      expect((await shop.read(exportId)).status).toBe('FAILED');
      const { id: next } = await bucket.create();
      await shop.work();
      await bucket.expectWhole(next);
    },
  );

  it('cancelled: the upload ends within two seconds and is aborted, and finished files remain', async () => {
    const { exportId, runId } = await started(2);
    const { arrived, resume } = holdHalfWay();
    const working = shop.worker().attempt(runId);
    await arrived;
    const beganMs = performance.now();
    await cancelExport(shop.deps, shop.workspaceId, exportId);
    await working;
    expect(performance.now() - beganMs).toBeLessThan(2_000);
    resume();
    expect((await shop.runs(exportId)).map(({ status }) => status)).toEqual(['CANCELLED', 'CANCELLED']);
    expect(await shop.firstRun(exportId)).toMatchObject({ retryNumber: 0, errors: null });
    await expectFirstFileOnly(exportId);
    await until('the upload to be aborted', async () => (await bucket.uploads(exportId)).length === 0);
  });

  it('cancelled while the store hangs: the pending upload is aborted when the store responds', async () => {
    const { exportId, runId } = await started();
    bucket.way.when(secondFileRequest, () => bucket.way.hang());
    const working = shop.worker().attempt(runId);
    await until('the store to hang', () => seen(exportId, secondFileRequest) > 0);
    await cancelExport(shop.deps, shop.workspaceId, exportId);
    await working;
    expect(await shop.firstRun(exportId)).toMatchObject({ status: 'CANCELLED', retryNumber: 0, errors: null });
    bucket.way.clear();
    await until('the pending upload to be removed', async () => {
      await sweepExports(shop.deps);
      return (await shop.firstRun(exportId)).pendingUpload === null && (await bucket.uploads(exportId)).length === 0;
    });
    await expectFirstFileOnly(exportId);
  });

  describe('with permission to write only', () => {
    const optional = ['GetObject', 'DeleteObject', 'AbortMultipartUpload', 'ListBucketMultipartUploads'];

    it('continues after the last recorded file, and the export is complete', async () => {
      await bucket.deny(...optional.map((action) => `s3:${action}`));
      const { exportId, runId } = await started();
      bucket.way.when(secondFileRequest, () => bucket.way.away(true));
      await shop.worker().attempt(runId);
      bucket.way.clear();
      expect(await shop.firstRun(exportId)).toMatchObject({ status: 'RUNNING', retryNumber: 1 });
      await shop.worker().attempt(runId);
      await bucket.allow();
      await bucket.expectWhole(exportId);
      expect(seen(exportId, requests('PUT', 1))).toBe(1);
      // Without the permission to abort, the upload remains; nevertheless the object is complete.
      expect(await bucket.uploads(exportId)).toHaveLength(1);
    });

    it('cancelled: finished files remain, and so does an upload that the key may not abort', async () => {
      await bucket.deny(...optional.map((action) => `s3:${action}`));
      const { exportId, runId } = await started();
      const { arrived, resume } = holdHalfWay();
      const working = shop.worker().attempt(runId);
      await arrived;
      await cancelExport(shop.deps, shop.workspaceId, exportId);
      await working;
      resume();
      await bucket.allow();
      expect((await shop.read(exportId)).status).toBe('CANCELLED');
      await expectFirstFileOnly(exportId);
      expect(await bucket.uploads(exportId)).toHaveLength(1);
    });
  });
});
