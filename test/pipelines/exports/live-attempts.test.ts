import { afterEach, describe, expect, it } from 'vitest';
import { raceWithAbort } from '../../../infra/timeouts/with-timeout.ts';
import type { ExportWorkerDeps } from '../../../pipelines/exports/export-deps.ts';
import { deferred } from '../../infra/deferred.ts';
import { until } from '../../infra/until.ts';
import { day, type ExportsUnderTest, openExportsUnderTest } from './exports-under-test.ts';

const dayMicros = 86_400_000_000;
const at = day('2026-03-05');
const leaseMs = 3_000;

let shop: ExportsUnderTest;
afterEach(() => shop?.close());

/** Starts an export of three days, and returns its runs. */
async function startExport() {
  shop = await openExportsUnderTest({ exportLeaseMs: leaseMs, exportRunsAtOnce: 3 });
  for (let ordinal = 0; ordinal < 3; ordinal += 1) await shop.store(5, at + ordinal * dayMicros);
  const made = await shop.create({ endTimeMicros: at + 3 * dayMicros });
  await shop.start(made.id);
  return { exportId: made.id, runs: await shop.runs(made.id) };
}

/** Returns a source whose reads wait until `resume` is called or their attempt is aborted. */
function createPausedSource() {
  const { promise: resumed, resolve: resume } = deferred();
  let reads = 0;
  const openSource: ExportWorkerDeps['openSource'] = (...scope) => {
    const source = shop.deps.openSource(...scope);
    return {
      ...source,
      read: async (chunk, folder, signal) => {
        reads += 1;
        await raceWithAbort(resumed, signal);
        return source.read(chunk, folder, signal);
      },
    };
  };
  return { openSource, resume, started: (count: number) => until('the reads to start', () => reads === count) };
}

/** Locks the row of an export run until the returned function is called. */
async function lockRow(runId: string): Promise<() => Promise<void>> {
  const { promise: locked, resolve: isLocked } = deferred();
  const { promise: released, resolve: release } = deferred();
  const transaction = shop.database.transaction(async (tx) => {
    await tx.query('SELECT FROM bulk_export_runs WHERE id = $1 FOR UPDATE', [runId]);
    isLocked();
    await released;
  });
  await locked;
  return async () => {
    release();
    await transaction;
  };
}

describe('while the row of one export run is locked for two leases', () => {
  it('its attempt ends, and the other attempts of the process keep their leases and finish', async () => {
    const { exportId, runs } = await startExport();
    const paused = createPausedSource();
    const worker = shop.worker({ openSource: paused.openSource });
    const [blocked, ...others] = runs.map(({ id }) => worker.attempt(id));
    await paused.started(3);
    const release = await lockRow(runs[0]?.id ?? '');
    const lockedMs = performance.now();
    await blocked;
    expect(performance.now() - lockedMs).toBeLessThan(leaseMs + 1_000);
    // No attempt can claim the locked run, and an attempt to claim it does not block the other runs of the export.
    await expect(shop.worker().attempt(runs[0]?.id ?? '')).resolves.toBe(false);
    await until('two leases to pass', () => performance.now() - lockedMs > 2 * leaseMs);
    const held = await shop.database.query(
      'SELECT FROM bulk_export_runs WHERE bulk_export_id = $1 AND lease_until > clock_timestamp()',
      [exportId],
    );
    expect(held).toHaveLength(2);
    paused.resume();
    await Promise.all(others);
    await release();
    await shop.worker().attempt(runs[0]?.id ?? '');
    const ended = (await shop.runs(exportId)).map(({ status, fence }) => ({ status, fence }));
    expect(ended).toEqual([2, 1, 1].map((fence) => ({ status: 'COMPLETED', fence })));
  });
});

describe('if the statement that renews the leases gets no response', () => {
  it('the attempts end before their leases expire', async () => {
    const { runs } = await startExport();
    const paused = createPausedSource();
    const worker = shop.worker({ openSource: paused.openSource });
    const startedMs = performance.now();
    const working = worker.attempt(runs[0]?.id ?? '');
    await paused.started(1);
    worker.stall();
    await working;
    expect(performance.now() - startedMs).toBeLessThan(leaseMs + 1_000);
    const [run] = await shop.runs(runs[0]?.exportId ?? '');
    expect(run).toMatchObject({ status: 'RUNNING', errors: null, fence: 1 });
  });
});
