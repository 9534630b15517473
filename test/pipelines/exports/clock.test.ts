import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { sweepExports } from '../../../pipelines/exports/scheduler.ts';
import { failingDeps } from './disturbed.ts';
import { day, type ExportsUnderTest, openExportsUnderTest } from './exports-under-test.ts';

const hourMs = 3_600_000;
const at = day('2026-03-05');

let shop: ExportsUnderTest;
beforeEach(async () => {
  // No clock is injected, as in production.
  shop = await openExportsUnderTest({ exportRetryDelayMs: hourMs }, { now: undefined });
});
afterEach(async () => {
  vi.useRealTimers();
  await shop?.close();
});

/** Sets the clock of this process, but not that of Postgres. */
const setProcessClock = (ms: number) => vi.useFakeTimers({ toFake: ['Date'], now: ms });

const listSpawnedExports = (scheduleId: string) =>
  shop.database.query('SELECT FROM bulk_exports WHERE source_bulk_export_id = $1', [scheduleId]);

it('a process whose clock is ahead neither spawns exports, retries export runs nor ends exports early', async () => {
  await shop.store(5, at);
  const schedule = await shop.create({ startTimeMicros: Date.now() * 1_000, intervalHours: 1 });
  const made = await shop.create();
  await shop.start(made.id);
  const [{ id: runId } = { id: '' }] = await shop.runs(made.id);
  await shop.worker(failingDeps(shop.deps, 'upload', 'DESTINATION_UNAVAILABLE')).attempt(runId);
  setProcessClock(Date.now() + shop.limits.exportTimeoutMs + 48 * hourMs);
  await sweepExports(shop.deps);
  expect(await shop.worker().attempt(runId)).toBe(false);
  expect(await listSpawnedExports(schedule.id)).toEqual([]);
  expect(await shop.read(made.id)).toMatchObject({ status: 'RUNNING' });
});

it('a process whose clock is behind spawns exports and retries export runs that are due', async () => {
  await shop.store(5, at);
  const schedule = await shop.create({ startTimeMicros: (Date.now() - 2 * hourMs) * 1_000, intervalHours: 1 });
  const made = await shop.create();
  await shop.start(made.id);
  const [{ id: runId } = { id: '' }] = await shop.runs(made.id);
  setProcessClock(Date.now() - 48 * hourMs);
  await sweepExports(shop.deps);
  expect(await listSpawnedExports(schedule.id)).toHaveLength(1);
  expect(await shop.worker().attempt(runId)).toBe(true);
  expect(await shop.read(made.id)).toMatchObject({ status: 'COMPLETED' });
});
