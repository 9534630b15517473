import { beforeAll, describe, expect, it } from 'vitest';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { ObjectStore } from '../../../infra/objects/object-store.ts';
import { cancelExport } from '../../../pipelines/exports/create-cancel.ts';
import { sweepExports } from '../../../pipelines/exports/scheduler.ts';
import { forSuite } from '../../for-suite.ts';
import { untilAborted } from '../../infra/deferred.ts';
import { failingDeps } from './disturbed.ts';
import { day, openExportsUnderTest } from './exports-under-test.ts';

const shop = forSuite(() => openExportsUnderTest({ exportsPerWorkspace: 1_000 }));
beforeAll(async () => {
  await shop.store(12, day('2026-03-05'));
});

const failing = () => failingDeps(shop.deps, 'upload', 'DESTINATION_UNAVAILABLE');
async function started() {
  const { id: exportId } = await shop.create();
  await shop.start(exportId);
  return { exportId, runId: (await shop.firstRun(exportId)).id };
}

describe('the pending upload of an ended run', () => {
  it('is removed from the bucket by the sweep', async () => {
    const { exportId, runId } = await started();
    await shop.worker(failing()).attempt(runId);
    const { pendingUpload } = await shop.firstRun(exportId);
    expect(pendingUpload).toMatchObject({ part: 1, rows: 10 });
    // The same state as left by a process that died between the end of the upload and its record.
    const store = await shop.deps.openStore({ workspaceId: shop.workspaceId, destinationId: shop.destinationId });
    const key = (pendingUpload?.path ?? '').replace(/^made\/by tests\//, '');
    await store.put(key, Buffer.from('not recorded'));
    await store.close();
    await cancelExport(shop.deps, shop.workspaceId, exportId);
    await sweepExports(shop.deps);
    expect((await shop.firstRun(exportId)).pendingUpload).toBeNull();
    expect([...(await shop.objects()).keys()].filter((each) => each.includes(exportId))).toEqual([]);
  });

  it('cannot be removed if the destination was deleted', async () => {
    const { exportId, runId } = await started();
    await shop.worker(failing()).attempt(runId);
    await cancelExport(shop.deps, shop.workspaceId, exportId);
    await sweepExports({
      ...shop.deps,
      openStore: async () => Promise.reject(runlakeError('NOT_FOUND', { what: 'Destination' })),
    });
    expect((await shop.firstRun(exportId)).pendingUpload).toBeNull();
  });

  it('stays pending while the bucket is unavailable', async () => {
    const { exportId, runId } = await started();
    await shop.worker(failing()).attempt(runId);
    await cancelExport(shop.deps, shop.workspaceId, exportId);
    for (const code of ['DESTINATION_UNAVAILABLE', 'DESTINATION_ENDPOINT_INVALID'] as const) {
      await sweepExports({ ...shop.deps, openStore: async () => Promise.reject(runlakeError(code)) });
      expect((await shop.firstRun(exportId)).pendingUpload).not.toBeNull();
    }
    await sweepExports(shop.deps);
    expect((await shop.firstRun(exportId)).pendingUpload).toBeNull();
  });

  it('does not delay the sweep or other clean-up while its bucket does not respond', async () => {
    const [hanging, other] = [await started(), await started()];
    for (const { exportId, runId } of [hanging, other]) {
      await shop.worker(failing()).attempt(runId);
      await cancelExport(shop.deps, shop.workspaceId, exportId);
    }
    await sweepExports({
      ...shop.deps,
      openStore: async (destination) => {
        const store = await shop.deps.openStore(destination);
        const abortUploads: ObjectStore['abortUploads'] = (key, ids, options) =>
          key.includes(hanging.exportId) ? untilAborted(options?.signal) : store.abortUploads(key, ids, options);
        return { ...store, abortUploads };
      },
    });
    expect((await shop.firstRun(other.exportId)).pendingUpload).toBeNull();
    expect((await shop.firstRun(hanging.exportId)).pendingUpload).not.toBeNull();
    await sweepExports(shop.deps);
    expect((await shop.firstRun(hanging.exportId)).pendingUpload).toBeNull();
  });
});
