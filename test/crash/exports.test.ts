/** `kill -9` of the process that writes a bulk export, at each step of a run; another process takes over by itself. */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { sweepExports } from '../../pipelines/exports/sweep-exports.ts';
import { someOf } from '../house/extent.ts';
import { type S3OfStack, s3OfStack } from '../infra/objects/s3/s3-of-stack.ts';
import type { WayToStore } from '../infra/objects/s3/way-to-store.ts';
import { until } from '../infra/until.ts';
import { deaths } from '../pipelines/exports/deaths.ts';
import { halfWay, type OwnBucket, openOwnBucket, requests, rowsOfSlice } from '../pipelines/exports/own-bucket.ts';
import { day, openWorkshop, type Workshop } from '../pipelines/exports/workshop.ts';
import { exportWorkers } from './export-worker.ts';

vi.setConfig({ testTimeout: 180_000 });

describe('kill -9 of the worker', () => {
  let shop: Workshop;
  const workers = exportWorkers(() => shop);
  afterEach(() => workers.end());
  afterAll(() => shop?.close());

  const at = day('2026-03-05');
  let ids: string[];
  let undisturbed: Map<string, string>;
  beforeAll(async () => {
    shop = await openWorkshop({ exportsPerWorkspace: 1_000 });
    ids = await shop.store(34, at);
    const made = await shop.create();
    await shop.work();
    undisturbed = await shop.files(made.id);
  });

  /** One time of each step: what differs by the number of parts that are done is told without a process. */
  const killed = deaths.filter(({ step, time }) => time === (step === 'count' ? 1 : 2));
  test.each(someOf(killed, 1 / 3))(
    '$when $step: another one goes on, and nothing finished is done twice',
    async (death) => {
      const made = await shop.create();
      expect(await workers.start({ at: death, does: 'die' }).exited).toBe('SIGKILL');
      const recorded = await shop.recorded(made.id);
      workers.start();
      await until('the export ends', async () => (await shop.read(made.id)).finishedAt !== null, 90_000);
      expect(await shop.read(made.id)).toMatchObject({ status: 'COMPLETED', rowsWritten: 34, retries: 0, files: 4 });
      expect(await shop.exportedIds(made.id)).toEqual(ids);
      expect(await shop.files(made.id)).toEqual(undisturbed);
      expect((await shop.recorded(made.id)).slice(0, recorded.length)).toEqual(recorded);
      // What the dead one had on the disk is given back.
      expect(await readdir(join(shop.workRoot, 'processes'))).toHaveLength(1);
    },
  );
});

const stack = s3OfStack();
describe.runIf(stack)('kill -9 of the worker while a file is on its way to a bucket', () => {
  const s3 = stack as S3OfStack;
  let shop: Workshop;
  let bucket: OwnBucket;
  const workers = exportWorkers(() => shop);
  beforeAll(async () => {
    shop = await openWorkshop({ exportsPerWorkspace: 1_000, exportSliceRows: rowsOfSlice });
    bucket = await openOwnBucket(s3, shop);
    await bucket.exportUndisturbed();
  });
  afterEach(() => workers.end());
  afterAll(async () => {
    await bucket?.close();
    await shop?.close();
    await s3?.close();
  });

  const asked = (recognises: RegExp) => (way: WayToStore, act: () => Promise<void>) => way.when(recognises, act);
  const answered = (recognises: RegExp) => (way: WayToStore, act: () => Promise<void>) =>
    way.whenAnswered(recognises, act);
  const moments = [
    ['an upload in parts has begun, and nobody knows its id', answered(requests('POST', 2, 'uploads')), 1],
    ['the first of its parts is about to go', asked(requests('PUT', 2, 'partNumber=1')), 1],
    ['it is half-way', answered(halfWay), 1],
    ['all of its parts are there', asked(requests('POST', 2, 'uploadId')), 1],
    ['it is put together, and not recorded', answered(requests('POST', 2, 'uploadId')), 1],
    ['the next file is there in one go, and not recorded', answered(requests('PUT', 3)), 2],
    ['the manifest is there, and the export not yet COMPLETED', answered(/^PUT .*_manifest\.json/), 3],
  ] as const;
  test.each(someOf(moments, 1 / 3))('%s: it is whole as if nothing had happened', async (_what, moment, filesDone) => {
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
  });
});
