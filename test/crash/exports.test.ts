/** `kill -9` of the process that writes a bulk export, at each step of an export run; another process continues it. */

import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { sweepExports } from '../../pipelines/exports/scheduler.ts';
import { forSuite } from '../for-suite.ts';
import { pickSome } from '../house/extent.ts';
import { findStackS3, type StackS3 } from '../infra/objects/s3/s3-of-stack.ts';
import type { StoreProxy } from '../infra/objects/s3/way-to-store.ts';
import { until } from '../infra/until.ts';
import { deaths } from '../pipelines/exports/deaths.ts';
import { day, openExportsUnderTest } from '../pipelines/exports/exports-under-test.ts';
import { openDedicatedBucket, requests, rowsPerChunk, secondFileRequest } from '../pipelines/exports/own-bucket.ts';
import { exportWorkers } from './export-worker.ts';

vi.setConfig({ testTimeout: 180_000 });

describe('kill -9 of the worker', () => {
  const shop = forSuite(() => openExportsUnderTest({ exportsPerWorkspace: 1_000 }));
  const workers = exportWorkers(() => shop);
  afterEach(() => workers.end());

  const at = day('2026-03-05');
  let ids: string[];
  let undisturbed: Map<string, string>;
  beforeAll(async () => {
    ids = await shop.store(34, at);
    const made = await shop.create();
    await shop.work();
    undisturbed = await shop.files(made.id);
  });

  /** Each step occurs once: tests without a process cover the differences by the number of finished parts. */
  const killed = deaths.filter(({ step, time }) => time === (step === 'count' ? 1 : 2));
  test.each(pickSome(killed, 1 / 3))(
    '$when $step: another worker continues, and no recorded file is written again',
    async (death) => {
      const made = await shop.create();
      expect(await workers.start({ at: death, does: 'die' }).exited).toBe('SIGKILL');
      const recorded = await shop.recorded(made.id);
      workers.start();
      await until('the export to end', async () => (await shop.read(made.id)).finishedAt !== null, 90_000);
      expect(await shop.read(made.id)).toMatchObject({ status: 'COMPLETED', rowsWritten: 34, retries: 0, files: 4 });
      expect(await shop.exportedIds(made.id)).toEqual(ids);
      expect(await shop.files(made.id)).toEqual(undisturbed);
      expect((await shop.recorded(made.id)).slice(0, recorded.length)).toEqual(recorded);
      // The files of the dead worker were deleted.
      expect(await readdir(join(shop.workRoot, 'processes'))).toHaveLength(1);
    },
  );
});

const stack = findStackS3();
describe.runIf(stack)('kill -9 of the worker during the upload of a file to a bucket', () => {
  const s3 = stack as StackS3;
  afterAll(() => s3.close());
  const shop = forSuite(() => openExportsUnderTest({ exportsPerWorkspace: 1_000, exportSliceRows: rowsPerChunk }));
  const bucket = forSuite(() => openDedicatedBucket(s3, shop));
  const workers = exportWorkers(() => shop);
  beforeAll(() => bucket.exportUndisturbed());
  afterEach(() => workers.end());

  const onRequest = (pattern: RegExp) => (way: StoreProxy, act: () => Promise<void>) => way.when(pattern, act);
  const onResponse = (recognises: RegExp) => (way: StoreProxy, act: () => Promise<void>) =>
    way.whenAnswered(recognises, act);
  const moments = [
    ['after the start of a multipart upload, before its id is recorded', onResponse(requests('POST', 2, 'uploads')), 1],
    ['before the first part of an upload', onRequest(requests('PUT', 2, 'partNumber=1')), 1],
    ['half-way through an upload', onResponse(secondFileRequest), 1],
    ['after all parts of an upload, before its completion', onRequest(requests('POST', 2, 'uploadId')), 1],
    ['after the completion of an upload, before it is recorded', onResponse(requests('POST', 2, 'uploadId')), 1],
    ['after the single upload of the next file, before it is recorded', onResponse(requests('PUT', 3)), 2],
    ['after the upload of the manifest, before the export is COMPLETED', onResponse(/^PUT .*_manifest\.json/), 3],
  ] as const;
  test.each(pickSome(moments, 1 / 3))(
    '%s: the export is complete, as without the kill',
    async (_what, moment, filesDone) => {
      const made = await bucket.create();
      const first = workers.start();
      moment(bucket.way, async () => {
        first.kill();
        await first.exited;
      });
      expect(await first.exited).toBe('SIGKILL');
      const recorded = await shop.recorded(made.id);
      expect(recorded).toHaveLength(filesDone);
      await shop.database.execute(`UPDATE bulk_export_runs SET lease_until = now() WHERE lease_until IS NOT NULL`);
      await sweepExports(shop.deps);
      await shop.work();
      await bucket.expectWhole(made.id);
      expect(await shop.read(made.id)).toMatchObject({ retries: 0 });
      expect((await shop.recorded(made.id)).slice(0, filesDone)).toEqual(recorded);
      expect(await bucket.uploads(made.id)).toEqual([]);
    },
  );
});
