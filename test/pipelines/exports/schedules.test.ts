import { afterEach, describe, expect, it } from 'vitest';
import { cancelExport } from '../../../pipelines/exports/create-cancel.ts';
import type { ExportLimits } from '../../../pipelines/exports/export-deps.ts';
import { type ExportWithProgress, listExports } from '../../../pipelines/exports/queries.ts';
import { splitIntoDays, sweepExports } from '../../../pipelines/exports/scheduler.ts';
import { spawnDueExports } from '../../../pipelines/exports/spawn-due-exports.ts';
import { type ExportsUnderTest, openExportsUnderTest } from './exports-under-test.ts';

const hourMs = 3_600_000;
const delayMs = 600_000;
let shop: ExportsUnderTest;
afterEach(() => shop?.close());

/** Creates a schedule that begins at `start`, in an installation whose clock is at `now`. */
async function scheduled(
  intervalHours: number,
  start: string,
  now: string,
  limits: Partial<ExportLimits> = {},
  filter?: string,
) {
  shop = await openExportsUnderTest({ exportsPerWorkspace: 1_000, ...limits });
  shop.clock.now = new Date(now);
  return shop.create({ startTimeMicros: Date.parse(start) * 1_000, intervalHours, filter });
}

/** Returns the exports that the schedule spawned, oldest first. */
async function spawned(schedule: ExportWithProgress): Promise<ExportWithProgress[]> {
  const found = await listExports(shop.database, shop.workspaceId, {
    sourceExportId: schedule.id,
    limit: 10_000,
    offset: 0,
  });
  return found.sort((a, b) => (a.startTime < b.startTime ? -1 : 1));
}

const formatRanges = (exports: readonly ExportWithProgress[]) =>
  exports.map(({ startTime, endTime }) => `${startTime.slice(0, 16)} ${endTime?.slice(0, 16)}`);

/** Checks that the exports are contiguous from the start of the schedule, and that each is as long as the interval. */
function expectTiled(schedule: ExportWithProgress, exports: readonly ExportWithProgress[]): void {
  let from = Date.parse(schedule.startTime);
  for (const each of exports) {
    expect(Date.parse(each.startTime)).toBe(from);
    from += (schedule.intervalHours as number) * hourMs;
    expect(Date.parse(each.endTime as string)).toBe(from);
  }
}

describe('a schedule', () => {
  it('spawns 00:00–06:00 at 06:10, 06:00–12:00 at 12:10, 12:00–18:00 at 18:10, each once', async () => {
    const schedule = await scheduled(6, '2026-03-05T00:00:00Z', '2026-03-05T00:00:00Z');
    expect(schedule).toMatchObject({
      status: 'RUNNING',
      endTime: null,
      intervalHours: 6,
      nextStartTime: schedule.startTime,
    });
    const times: string[] = [];
    for (let minute = 0; minute < 19 * 60; minute += 5) {
      shop.clock.now = new Date(Date.parse('2026-03-05T00:00:00Z') + minute * 60_000);
      const before = (await spawned(schedule)).length;
      await Promise.all([spawnDueExports(shop.deps), spawnDueExports(shop.deps)]);
      if ((await spawned(schedule)).length > before) times.push(shop.clock.now.toISOString().slice(11, 16));
    }
    expect(times).toEqual(['06:10', '12:10', '18:10']);
    const exports = await spawned(schedule);
    expect(formatRanges(exports)).toEqual([
      '2026-03-05T00:00 2026-03-05T06:00',
      '2026-03-05T06:00 2026-03-05T12:00',
      '2026-03-05T12:00 2026-03-05T18:00',
    ]);
    for (const each of exports) {
      expect(each).toMatchObject({
        sourceExportId: schedule.id,
        intervalHours: null,
        destinationId: schedule.destinationId,
        projectId: schedule.projectId,
        formatVersion: 'v2_beta',
        exportFields: ['id', 'name'],
      });
    }
    expect((await shop.read(schedule.id)).status).toBe('RUNNING');
  });

  it.each([
    [1, '2024-02-28T21:30:00.5Z', 8],
    [24, '2024-02-27T00:00:00Z', 4],
    [24, '2026-12-30T13:00:00Z', 4],
    [168, '2024-02-26T00:00:00Z', 9],
    [167, '2026-03-27T23:59:59.999999Z', 5],
  ])(
    'every %i h from %s, spawns on time across leap days, months, years and daylight-saving changes',
    async (hours, start, count) => {
      const schedule = await scheduled(hours, start, start);
      for (let index = 1; index <= count; index++) {
        const due = Date.parse(start) + index * hours * hourMs + delayMs;
        shop.clock.now = new Date(due - 1);
        await spawnDueExports(shop.deps);
        expect(await spawned(schedule)).toHaveLength(index - 1);
        // A time in milliseconds may represent a time that is up to one millisecond later.
        shop.clock.now = new Date(due + 1);
        await spawnDueExports(shop.deps);
        expect(await spawned(schedule)).toHaveLength(index);
      }
      expectTiled(schedule, await spawned(schedule));
    },
  );

  it('passes its filter to the exports', async () => {
    const schedule = await scheduled(6, '2026-03-05T00:00:00Z', '2026-03-05T00:00:00Z', {}, 'eq(run_type, "llm")');
    shop.clock.now = new Date('2026-03-05T06:10:00Z');
    await spawnDueExports(shop.deps);
    expect((await spawned(schedule)).map(({ filter }) => filter)).toEqual(['eq(run_type, "llm")']);
  });

  it('catches up after a downtime one interval at a time, without gaps or duplicates', async () => {
    const schedule = await scheduled(24, '2024-02-01T00:00:00Z', '2024-02-01T00:00:00Z');
    shop.clock.now = new Date('2024-05-01T00:10:00Z');
    let rounds = 0;
    for (;;) {
      await sweepExports(shop.deps);
      const unfinished = (await spawned(schedule)).filter(({ finishedAt }) => finishedAt === null);
      if (unfinished.length === 0) break;
      expect(unfinished.length).toBeLessThanOrEqual(2);
      // The last interval is spawned on time, without waiting for the previous export.
      if (unfinished.length === 2) expect(unfinished[1]?.startTime).toBe('2024-04-30T00:00:00.000000Z');
      const [job] = shop.jobs;
      expect(job?.name).toBe('coordinate-export');
      await shop.work();
      rounds += 1;
      if (rounds > 200) throw new Error('no end');
    }
    const exports = await spawned(schedule);
    expect(exports).toHaveLength(90);
    expectTiled(schedule, exports);
    expect(exports.every(({ status }) => status === 'COMPLETED')).toBe(true);
  });

  it('spawns on time while an export takes longer than its interval', async () => {
    const schedule = await scheduled(1, '2026-03-05T00:00:00Z', '2026-03-05T00:00:00Z');
    for (const hour of [1, 2, 3]) {
      shop.clock.now = new Date(Date.parse('2026-03-05T00:10:00Z') + hour * hourMs);
      await spawnDueExports(shop.deps);
    }
    expect((await spawned(schedule)).map(({ status }) => status)).toEqual(['CREATED', 'CREATED', 'CREATED']);
  });

  it('spawns nothing after its cancellation; exports that it spawned continue and are cancelled separately', async () => {
    const schedule = await scheduled(1, '2026-03-05T00:00:00Z', '2026-03-05T00:00:00Z');
    shop.clock.now = new Date('2026-03-05T01:10:00Z');
    await spawnDueExports(shop.deps);
    expect(await cancelExport(shop.deps, shop.workspaceId, schedule.id)).toMatchObject({ status: 'CANCELLED' });
    shop.clock.now = new Date('2026-03-05T09:10:00Z');
    await sweepExports(shop.deps);
    const [first, ...more] = await spawned(schedule);
    expect(more).toEqual([]);
    await shop.work();
    expect((await spawned(schedule))[0]?.status).toBe('COMPLETED');
    await expect(cancelExport(shop.deps, shop.workspaceId, first?.id ?? '')).rejects.toMatchObject({
      code: 'EXPORT_FINISHED',
    });
  });

  it('does not count as a running export and never times out', async () => {
    const schedule = await scheduled(168, '2026-03-05T00:00:00Z', '2026-03-05T00:00:00Z', { exportsPerWorkspace: 1 });
    shop.clock.now = new Date(shop.clock.now.getTime() + 60 * 24 * hourMs);
    await sweepExports(shop.deps);
    await shop.work();
    expect((await shop.read(schedule.id)).status).toBe('RUNNING');
    expect((await spawned(schedule)).some(({ status }) => status === 'COMPLETED')).toBe(true);
  });

  it('fails if its project was deleted', async () => {
    const schedule = await scheduled(1, '2026-03-05T00:00:00Z', '2026-03-05T00:00:00Z');
    await shop.database.execute('UPDATE projects SET deleted_at = now() WHERE id = $1', [shop.projectId]);
    shop.clock.now = new Date('2026-03-05T01:10:00Z');
    await sweepExports(shop.deps);
    expect(await shop.read(schedule.id)).toMatchObject({ status: 'FAILED', statusReason: 'Its project was deleted.' });
    expect(await spawned(schedule)).toEqual([]);
  });
});

const utc = (text: string) => `${text}Z`;

describe('the days of a range', () => {
  it.each([
    ['a day', '2026-03-05T00:00:00.000000', '2026-03-06T00:00:00.000000', 1],
    ['within a day', '2026-03-05T10:00:00.000001', '2026-03-05T10:00:00.000002', 1],
    ['across midnight', '2026-03-05T23:59:59.999999', '2026-03-06T00:00:00.000001', 2],
    ['up to midnight', '2026-03-05T12:00:00.000000', '2026-03-06T00:00:00.000000', 1],
    ['leap day', '2024-02-28T12:00:00.000000', '2024-03-01T12:00:00.000000', 3],
    ['no leap day', '2026-02-28T12:00:00.000000', '2026-03-01T12:00:00.000000', 2],
    ['a year with both daylight-saving changes', '2026-01-01T00:00:00.000000', '2027-01-01T00:00:00.000000', 365],
    ['the end of time, but nothing before 1970', '2259-12-31T00:00:00.000000', '2260-01-01T00:00:00.000000', 1],
  ])('%s', (_name, start, end, days) => {
    const windows = splitIntoDays(utc(start), utc(end));
    expect(windows).toHaveLength(days);
    expect(windows[0]?.start).toBe(utc(start));
    expect(windows.at(-1)?.end).toBe(utc(end));
    for (const [index, window] of windows.entries()) {
      // The windows are contiguous, and each window lies within one day.
      expect(window.start).toBe(windows[index - 1]?.end ?? utc(start));
      expect(window.start < window.end).toBe(true);
      const midnight = new Date(Date.parse(`${window.start.slice(0, 10)}T00:00:00Z`) + 86_400_000).toISOString();
      expect(window.end.slice(0, 19) <= midnight.slice(0, 19)).toBe(true);
      if (index > 0) expect(window.start).toMatch(/T00:00:00\.000000Z$/);
    }
  });
});
