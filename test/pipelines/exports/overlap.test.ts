import { readdir } from 'node:fs/promises';
import { afterEach, expect, test } from 'vitest';
import type { ExportWorkerDeps } from '../../../pipelines/exports/export-deps.ts';
import { until } from '../../infra/until.ts';
import { day, type ExportsUnderTest, openExportsUnderTest } from './exports-under-test.ts';

let shop: ExportsUnderTest;
afterEach(() => shop?.close());

const partOf = (folder: string) => Number(folder.replace(/.*part-/, ''));

/** Records when parts are read and uploaded; the upload of the first part waits for `released`. */
function watched(released: Promise<void>) {
  const reads: { readonly part: number; readonly uploaded: number; readonly folders: number }[] = [];
  let uploaded = 0;
  const deps: Partial<ExportWorkerDeps> = {
    openSource: (...scope) => {
      const source = shop.deps.openSource(...scope);
      return {
        ...source,
        read: async (chunk, folder, signal) => {
          const folders = await readdir(`${folder}/..`);
          reads.push({ part: partOf(folder), uploaded, folders: folders.length });
          return source.read(chunk, folder, signal);
        },
      };
    },
    openStore: async (destination) => {
      const store = await shop.deps.openStore(destination);
      return {
        ...store,
        upload: async (key, path, options) => {
          if (uploaded === 0) await released;
          const done = await store.upload(key, path, options);
          uploaded += 1;
          return done;
        },
      };
    },
  };
  return { reads, deps };
}

test('prepares at most two parts during an upload, so that at most three are on disk', async () => {
  shop = await openExportsUnderTest({ exportSliceRows: 2 });
  const ids = await shop.store(14, day('2026-03-05'));
  const made = await shop.create();
  await shop.start(made.id);
  let release: () => void = () => undefined;
  const { reads, deps } = watched(new Promise((resolve) => (release = resolve)));
  const [run] = await shop.runs(made.id);
  const attempt = shop.worker(deps).attempt(run?.id ?? '');
  await until('the third part to be read', () => reads.length === 3);
  release();
  await attempt;
  expect(reads.map(({ part }) => part)).toEqual([1, 2, 3, 4, 5, 6, 7]);
  for (const { part, uploaded, folders } of reads) {
    expect(uploaded).toBeGreaterThanOrEqual(part - 3);
    expect(folders).toBeLessThanOrEqual(3);
  }
  expect(await shop.exportedIds(made.id)).toEqual(ids);
});
