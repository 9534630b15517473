import { afterEach, expect, test } from 'vitest';
import { sweepExports } from '../../../pipelines/exports/scheduler.ts';
import { spawnDueExports } from '../../../pipelines/exports/spawn-due-exports.ts';
import { type ExportsUnderTest, openExportsUnderTest } from './exports-under-test.ts';

let shop: ExportsUnderTest;
afterEach(() => shop?.close());

test('the sweep cancels the schedules and exports of a deleted workspace', async () => {
  shop = await openExportsUnderTest();
  shop.clock.now = new Date('2026-03-05T00:00:00Z');
  const schedule = await shop.create({ intervalHours: 1, startTimeMicros: shop.clock.now.getTime() * 1_000 });
  const done = await shop.create();
  await shop.work();
  const waiting = await shop.create();
  const running = await shop.create();
  await shop.start(running.id);
  expect((await shop.read(done.id)).status).toBe('COMPLETED');

  await shop.database.execute('UPDATE workspaces SET deleted_at = now() WHERE id = $1', [shop.workspaceId]);
  shop.clock.now = new Date('2026-03-05T05:10:00Z');
  await sweepExports(shop.deps);
  const reason = 'Its workspace was deleted.';
  for (const { id } of [schedule, waiting, running]) {
    expect(await shop.read(id)).toMatchObject({ status: 'CANCELLED', statusReason: reason });
  }
  expect((await shop.runs(running.id)).map(({ status }) => status)).toEqual(['CANCELLED']);
  expect((await shop.read(done.id)).status).toBe('COMPLETED');
  await spawnDueExports(shop.deps);
  const [{ spawned } = { spawned: -1 }] = await shop.database.query<{ spawned: number }>(
    'SELECT count(*) AS spawned FROM bulk_exports WHERE source_bulk_export_id IS NOT NULL',
  );
  expect(spawned).toBe(0);
});
