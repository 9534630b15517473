import { beforeAll, expect, it } from 'vitest';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { ObjectStore } from '../../../infra/objects/object-store.ts';
import { sweepExports } from '../../../pipelines/exports/scheduler.ts';
import { forSuite } from '../../for-suite.ts';
import { day, openExportsUnderTest } from './exports-under-test.ts';

/** A store whose responses only look as if a file of an export was missing, before the manifest is written. */

const shop = forSuite(() => openExportsUnderTest());
beforeAll(async () => {
  await shop.store(1, day('2026-03-05'));
});

const place = { step: 'read', reason: 'r', where: 'w' };
const page = runlakeError('DESTINATION_ENDPOINT_INVALID', place);
const cause = Object.assign(new Error('none'), { name: 'CredentialsProviderError' });
const withoutCredentials = runlakeError('DESTINATION_ACCESS_DENIED', place, { cause });
const missing = runlakeError('DESTINATION_OBJECT_MISSING', place);

/** Sweeps all exports with a changed store. */
const sweep = (change: Partial<ObjectStore>) =>
  sweepExports({
    ...shop.deps,
    openStore: async (destination) => ({ ...(await shop.deps.openStore(destination)), ...change }),
  });

const table: readonly (readonly [what: string, change: Partial<ObjectStore>])[] = [
  ['a page of its proxy', { stat: async () => undefined, get: () => Promise.reject(page) }],
  ['an object that is there again', { stat: async () => undefined, get: async () => Buffer.from('x') }],
  ['lost credentials', { stat: () => Promise.reject(withoutCredentials) }],
];

it.each(table)('%s does not fail the export', async (_what, change) => {
  const { id } = await shop.create();
  await shop.start(id);
  const stat: ObjectStore['stat'] = () => Promise.reject(runlakeError('DESTINATION_UNAVAILABLE', place));
  const [run] = await shop.runs(id);
  const openStore: typeof shop.deps.openStore = async (destination) => ({
    ...(await shop.deps.openStore(destination)),
    stat,
  });
  await expect(shop.worker({ openStore }).attempt(run?.id ?? '')).rejects.toThrow();
  await shop.database.execute(`UPDATE bulk_export_files SET etag = 'e' WHERE bulk_export_run_id = $1`, [run?.id]);
  await sweep(change);
  expect((await shop.read(id)).status).toBe('RUNNING');
  await sweep({ stat: async () => undefined, get: () => Promise.reject(missing) });
  expect(await shop.read(id)).toMatchObject({ status: 'FAILED', statusReason: expect.stringContaining('missing') });
});
