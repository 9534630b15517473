import { expect, it } from 'vitest';
import { formatProgress } from '../../../api/command-line/export/watch.ts';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { Checkpoint, type ClaimedExportRun, claimRun, endAttempt } from '../../../pipelines/exports/checkpoint.ts';
import { cancelExport } from '../../../pipelines/exports/create-cancel.ts';
import { computeCompletedShare, type ExportWithProgress } from '../../../pipelines/exports/queries.ts';
import { buildPartKey } from '../../../pipelines/exports/record.ts';
import { advanceExport } from '../../../pipelines/exports/scheduler.ts';
import { forSuite } from '../../for-suite.ts';
import { Random } from '../../histories/random.ts';
import { day, openExportsUnderTest } from './exports-under-test.ts';

const shop = forSuite(() =>
  openExportsUnderTest({ exportsPerWorkspace: 1_000, exportRetries: 1_000, exportRetryDelayMs: 0 }),
);
const store = forSuite(() => shop.openStore(shop));

/** Expected state of a day, and the worker that processes it. */
interface Day {
  readonly id: string;
  total: number | undefined;
  written: number;
  completed: boolean;
  claimed: ClaimedExportRun | undefined;
  part: number;
}

const micros = 86_400_000_000;
const cursor = { startTimeMicros: 1, traceId: 't', runId: 'r' };

/** Returns the figures of an export that a user sees; no figure may ever decrease. */
function figures(of: ExportWithProgress): Record<string, number> {
  const words = formatProgress(of, new Date());
  const percent = /^([\d,]+) %/.exec(words)?.[1] ?? (of.status === 'CREATED' ? '0' : 'none');
  return {
    percent: Number(percent),
    share: computeCompletedShare(of),
    rows: of.rowsWritten,
    bytes: of.bytesWritten,
    days: of.runsCompleted,
    files: of.files,
    retries: of.retries,
  };
}

const seeds = Array.from({ length: 12 }, (_, index) => 7_100 + index);

it.each(seeds)('progress never decreases with attempts that fail, crash and are released (seed %d)', async (seed) => {
  const random = new Random(seed);
  const count = random.between(1, 5);
  const { id: exportId } = await shop.create({ endTimeMicros: day('2026-03-05') + count * micros });
  let before = figures(await shop.read(exportId));
  /** Checks that no figure has decreased, and that the reported share matches the progress of the days. */
  const checkProgress = async (what: string, days: readonly Day[]) => {
    const of = await shop.read(exportId);
    const now = figures(of);
    for (const [name, value] of Object.entries(now)) {
      expect(value, `${name} after ${what}: ${JSON.stringify({ before, now, days })}`).toBeGreaterThanOrEqual(
        before[name] as number,
      );
    }
    const parts = days.map(({ completed, total = 0, written }) =>
      completed ? 1 : total > 0 ? Math.min(written / total, 1) : 0,
    );
    if (of.status === 'RUNNING') {
      const expected = Math.min(parts.reduce((sum, part) => sum + part, 0) / count, 0.99);
      expect(Math.abs(computeCompletedShare(of) - expected)).toBeLessThan(1e-5);
    }
    expect(of.rowsWritten).toBe(days.reduce((sum, { written }) => sum + written, 0));
    before = now;
  };
  await shop.start(exportId);
  const days: Day[] = (await shop.runs(exportId)).map(({ id }) => ({
    id,
    total: undefined,
    written: 0,
    completed: false,
    claimed: undefined,
    part: 1,
  }));
  await checkProgress('its start', days);

  const checkpointOf = (claimed: ClaimedExportRun) => new Checkpoint(shop.deps, claimed.run);
  const steps: Record<string, (of: Day, claimed: ClaimedExportRun) => Promise<void>> = {
    async count(of, claimed) {
      if (of.total !== undefined) return;
      const total = random.chance(0.2) ? 0 : random.between(1, 40);
      await checkpointOf(claimed).recordTotal(total);
      of.total = total;
    },
    async write(of, claimed) {
      if (of.total === undefined) return;
      // Sometimes more rows than were counted: runs may become members after the count.
      const rows = random.between(1, 15);
      const part = of.part++;
      const key = buildPartKey(claimed.of, claimed.run, part);
      await store.put(key, Buffer.from('content'.repeat(rows)));
      const file = { part, path: store.resolvePath(key), rows, bytes: rows * 7, sha256: 's', etag: null };
      await checkpointOf(claimed).recordFile(file, cursor);
      of.written += rows;
    },
    skip: (_of, claimed) => checkpointOf(claimed).skipTo(cursor),
    async fail(of, claimed) {
      expect(await endAttempt(shop.deps, claimed.run, runlakeError('EVENT_LOG_UNAVAILABLE'))).toBe('retried');
      of.claimed = undefined;
    },
    async release(of, claimed) {
      expect(await endAttempt(shop.deps, claimed.run, runlakeError('DRAINING'))).toBe('released');
      of.claimed = undefined;
    },
    async crash(of, claimed) {
      await shop.worker().lose(of.id);
      of.claimed = await claimRun(shop.deps, of.id);
      // The previous worker resumes and must not write.
      const late = { part: 99, path: 'p', rows: 5, bytes: 5, sha256: 's', etag: null };
      await expect(checkpointOf(claimed).recordFile(late, cursor)).rejects.toMatchObject({
        code: 'EXPORT_ATTEMPT_OVER',
      });
    },
    async complete(of, claimed) {
      if (of.total === undefined) return;
      await checkpointOf(claimed).complete({ lateRuns: 0 });
      of.completed = true;
      of.claimed = undefined;
    },
  };
  const isCancelled = random.chance(0.25);
  for (let n = 0; n < 40; n++) {
    const open = days.filter(({ completed }) => !completed);
    if (open.length === 0) break;
    const of = random.pick(open);
    of.claimed ??= await claimRun(shop.deps, of.id);
    expect(of.claimed).toBeDefined();
    const name = random.pick(Object.keys(steps));
    await steps[name]?.(of, of.claimed as ClaimedExportRun);
    await checkProgress(name, days);
  }
  if (isCancelled) {
    await cancelExport(shop.deps, shop.workspaceId, exportId);
    await checkProgress('its cancellation', days);
    return;
  }
  for (const of of days.filter(({ completed }) => !completed)) {
    const claimed = of.claimed ?? ((await claimRun(shop.deps, of.id)) as ClaimedExportRun);
    await steps.count?.(of, claimed);
    await steps.complete?.(of, claimed);
    await checkProgress('the end of a day', days);
  }
  await advanceExport(shop.deps, exportId);
  await checkProgress('its end', days);
  expect(before.share).toBe(1);
});
