import { afterAll, beforeAll, expect, it } from 'vitest';
import { progressWords } from '../../../api/command-line/export/progress-line.ts';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { ObjectStore } from '../../../infra/objects/object-store.ts';
import { advanceExport } from '../../../pipelines/exports/advance-export.ts';
import { cancelExport } from '../../../pipelines/exports/cancel-export.ts';
import { keyOfPart } from '../../../pipelines/exports/export-locations.ts';
import { type ExportWithProgress, shareDone } from '../../../pipelines/exports/read-export.ts';
import { Checkpoint } from '../../../pipelines/exports/runs/checkpoint.ts';
import { endAttempt } from '../../../pipelines/exports/runs/end-attempt.ts';
import { type ClaimedRun, claimRun } from '../../../pipelines/exports/runs/take-run.ts';
import { Random } from '../../histories/random.ts';
import { day, openWorkshop, type Workshop } from './workshop.ts';

let shop: Workshop;
let store: ObjectStore;
beforeAll(async () => {
  shop = await openWorkshop({ exportsPerWorkspace: 1_000, exportRetries: 1_000, exportRetryDelayMs: 0 });
  store = await shop.openStore(shop);
});
afterAll(async () => {
  await store?.close();
  await shop?.close();
});

/** The expected state of a day, and the worker that has it. */
interface Day {
  readonly id: string;
  total: number | undefined;
  written: number;
  completed: boolean;
  taken: ClaimedRun | undefined;
  part: number;
}

const micros = 86_400_000_000;
const cursor = { startTimeMicros: 1, traceId: 't', runId: 'r' };

/** The figures that a user sees of an export; none may ever decrease. */
function figures(of: ExportWithProgress): Record<string, number> {
  const words = progressWords(of, new Date());
  const percent = /^([\d,]+) %/.exec(words)?.[1] ?? (of.status === 'CREATED' ? '0' : 'none');
  return {
    percent: Number(percent),
    share: shareDone(of),
    rows: of.rowsWritten,
    bytes: of.bytesWritten,
    days: of.runsCompleted,
    files: of.files,
    retries: of.retries,
  };
}

const seeds = Array.from({ length: 12 }, (_, place) => 7_100 + place);

it.each(seeds)('the progress of an export with attempts that fail, crash and are released never decreases (seed %d)', async (seed) => {
  const random = new Random(seed);
  const count = random.between(1, 5);
  const { id: exportId } = await shop.create({ endTimeMicros: day('2026-03-05') + count * micros });
  let before = figures(await shop.read(exportId));
  /** No figure has decreased, and the share agrees with the days. */
  const look = async (what: string, days: readonly Day[]) => {
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
      expect(Math.abs(shareDone(of) - expected)).toBeLessThan(1e-5);
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
    taken: undefined,
    part: 1,
  }));
  await look('its start', days);

  const checkpointOf = (taken: ClaimedRun) => new Checkpoint(shop.database, taken.run, shop.deps.now);
  const steps: Record<string, (of: Day, taken: ClaimedRun) => Promise<void>> = {
    async count(of, taken) {
      if (of.total !== undefined) return;
      const total = random.chance(0.2) ? 0 : random.between(1, 40);
      await checkpointOf(taken).recordTotal(total);
      of.total = total;
    },
    async write(of, taken) {
      if (of.total === undefined) return;
      // Sometimes more than were counted: runs may become members after the count.
      const rows = random.between(1, 15);
      const part = of.part++;
      const key = keyOfPart(taken.of, taken.run, part);
      await store.put(key, Buffer.from('content'.repeat(rows)));
      const file = { part, path: store.pathOf(key), rows, bytes: rows * 7, sha256: 's', etag: null };
      await checkpointOf(taken).recordFile(file, cursor);
      of.written += rows;
    },
    skip: (_of, taken) => checkpointOf(taken).skipTo(cursor),
    async fail(of, taken) {
      expect(await endAttempt(shop.deps, taken.run, runlakeError('EVENT_LOG_UNAVAILABLE'))).toBe('retried');
      of.taken = undefined;
    },
    async giveBack(of, taken) {
      expect(await endAttempt(shop.deps, taken.run, runlakeError('DRAINING'))).toBe('released');
      of.taken = undefined;
    },
    async crash(of, taken) {
      await shop.worker().lose(of.id);
      of.taken = await claimRun(shop.database, of.id, shop.limits, shop.deps.now());
      // The previous worker resumes and must not write.
      const late = { part: 99, path: 'p', rows: 5, bytes: 5, sha256: 's', etag: null };
      await expect(checkpointOf(taken).recordFile(late, cursor)).rejects.toMatchObject({ code: 'EXPORT_ATTEMPT_OVER' });
    },
    async complete(of, taken) {
      if (of.total === undefined) return;
      await checkpointOf(taken).complete({ lateRuns: 0 });
      of.completed = true;
      of.taken = undefined;
    },
  };
  const isCancelled = random.chance(0.25);
  for (let n = 0; n < 40; n++) {
    const open = days.filter(({ completed }) => !completed);
    if (open.length === 0) break;
    const of = random.pick(open);
    of.taken ??= await claimRun(shop.database, of.id, shop.limits, shop.deps.now());
    expect(of.taken).toBeDefined();
    const name = random.pick(Object.keys(steps));
    await steps[name]?.(of, of.taken as ClaimedRun);
    await look(name, days);
  }
  if (isCancelled) {
    await cancelExport(shop.deps, shop.workspaceId, exportId);
    await look('its cancellation', days);
    return;
  }
  for (const of of days.filter(({ completed }) => !completed)) {
    const taken = of.taken ?? ((await claimRun(shop.database, of.id, shop.limits, shop.deps.now())) as ClaimedRun);
    await steps.count?.(of, taken);
    await steps.complete?.(of, taken);
    await look('the end of a day', days);
  }
  await advanceExport(shop.deps, exportId);
  await look('its end', days);
  expect(before.share).toBe(1);
});
