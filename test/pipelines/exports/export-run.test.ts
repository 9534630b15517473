import { readdir } from 'node:fs/promises';
import { beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { finishExport } from '../../../pipelines/exports/states.ts';
import { runOnStoredTable } from '../../engines/on-stored-table.ts';
import { forSuite } from '../../for-suite.ts';
import { pickSome } from '../../house/extent.ts';
import { deferred } from '../../infra/deferred.ts';
import { until } from '../../infra/until.ts';
import { insertEvents, runEvent } from '../runs/run-events.ts';
import { createDyingDeps, type Death, deaths } from './deaths.ts';
import { failureParams } from './disturbed.ts';
import { day, openExportsUnderTest } from './exports-under-test.ts';

const shop = forSuite(() => openExportsUnderTest({ exportRetryDelayMs: 0, exportsPerWorkspace: 1_000 }));
beforeEach(() => {
  shop.jobs.length = 0;
});

/** A separate project for each test, so that chunks contain no runs of other tests. */
let days = 0;
const nextDay = () => day('2025-01-01') + days++ * 86_400_000_000;
const dayMicros = 86_400_000_000;

describe('an undisturbed run', () => {
  it('writes every member to files up to the row limit, in order, and counts them', async () => {
    const at = nextDay();
    const ids = await shop.store(34, at);
    const made = await shop.create({ startTimeMicros: at, endTimeMicros: at + dayMicros });
    await shop.work();
    expect(await shop.exportedIds(made.id)).toEqual(ids);
    const [run] = await shop.runs(made.id);
    expect(run).toMatchObject({
      status: 'COMPLETED',
      rowsTotal: 34,
      rowsWritten: 34,
      lateRuns: 0,
      pendingUpload: null,
    });
    expect(run?.paths).toHaveLength(4);
    expect(run?.paths).toEqual([...(run?.paths ?? [])].sort());
    expect(run?.paths.every((path) => path.startsWith(`${run.folder}/`))).toBe(true);
    expect(await shop.read(made.id)).toMatchObject({
      status: 'COMPLETED',
      rowsWritten: 34,
      files: 4,
      runsCompleted: 1,
    });
  });

  it('is COMPLETED without files for a day without runs', async () => {
    const at = nextDay();
    const made = await shop.create({ startTimeMicros: at, endTimeMicros: at + dayMicros });
    await shop.work();
    const [run] = await shop.runs(made.id);
    expect(run).toMatchObject({ status: 'COMPLETED', rowsTotal: 0, rowsWritten: 0, bytesWritten: 0, paths: [] });
    const keys = [...(await shop.objects()).keys()].filter((key) => key.includes(made.id));
    expect(keys).toEqual([expect.stringMatching(/_manifest\.json$/)]);
  });

  it('clips its days to the half-open range, and excludes other projects and workspaces', async () => {
    const at = nextDay();
    days += 2;
    const ids = await shop.store(3, at + dayMicros - 1_500_000);
    await insertEvents(shop.clickhouse, [
      runEvent({ tenantId: shop.workspaceId, startTimeMicros: at + 5, receivedAtMicros: at }),
      runEvent({ projectId: shop.projectId, startTimeMicros: at + 5, receivedAtMicros: at }),
    ]);
    const [start, end] = [at + dayMicros - 1_500_000, at + dayMicros + 500_000];
    const made = await shop.create({ startTimeMicros: start, endTimeMicros: end });
    await shop.work();
    expect(await shop.exportedIds(made.id)).toEqual(ids.slice(0, 2));
    expect((await shop.runs(made.id)).map(({ rowsWritten }) => rowsWritten)).toEqual([2, 0]);
  });

  it('contains only the runs that match the filter of the export, in all its files and counts', async () => {
    const at = nextDay();
    const ids = await shop.store(40, at, undefined, (place) => ({
      name: place % 2 === 0 ? 'even' : 'odd',
      runType: 'llm',
      totalTokens: place,
      extra: Buffer.from(`{"metadata":{"place":${place % 10}}}`),
    }));
    const filter =
      'and(eq(name, "even"), gt(total_tokens, 3), not(and(eq(metadata_key, "place"), eq(metadata_value, 6))))';
    const made = await shop.create({ startTimeMicros: at, endTimeMicros: at + dayMicros, filter });
    await shop.work();
    const expected = ids.filter((_, place) => place % 2 === 0 && place > 3 && place % 10 !== 6);
    expect(await shop.exportedIds(made.id)).toEqual(expected);
    expect(await shop.runs(made.id)).toMatchObject([
      { status: 'COMPLETED', rowsTotal: expected.length, rowsWritten: expected.length },
    ]);
    expect(made.filter).toBe(filter);
  });

  it('counts as late only runs that match the filter', async () => {
    const at = nextDay();
    await shop.store(2, at, undefined, () => ({ name: 'wanted' }));
    const late = Date.now() * 1_000 + dayMicros;
    await shop.store(3, at + 60_000_000, late, (place) => ({ name: place === 0 ? 'wanted' : 'other' }));
    const made = await shop.create({
      startTimeMicros: at,
      endTimeMicros: at + dayMicros,
      filter: 'eq(name, "wanted")',
    });
    await shop.work();
    expect(await shop.runs(made.id)).toMatchObject([{ rowsWritten: 2, lateRuns: 1 }]);
  });

  it('leaves the work folder empty', async () => {
    const own = await readdir(shop.workRoot);
    expect(own).toHaveLength(1);
    expect(await readdir(`${shop.workRoot}/${own[0]}`)).toEqual(['owner.json']);
  });
});

describe('the manifest', () => {
  it('exists when the export is COMPLETED and lists its files', async () => {
    const at = nextDay();
    days += 1;
    await shop.store(12, at);
    await shop.store(2, at + dayMicros);
    const made = await shop.create({ startTimeMicros: at, endTimeMicros: at + 2 * dayMicros });
    await shop.work();
    const objects = await shop.objects();
    const key = [...objects.keys()].find((each) => each.includes(made.id) && each.endsWith('_manifest.json'));
    const manifest = JSON.parse(String(objects.get(key ?? '')));
    expect(key).toBe(
      `made/by tests/export_id=${made.id}/tenant_id=${shop.workspaceId}/session_id=${shop.projectId}/_manifest.json`,
    );
    expect(manifest).toMatchObject({
      manifest_version: 1,
      bulk_export_id: made.id,
      format_version: 'v2_beta',
      fields: ['id', 'name'],
      rows: 14,
      late_runs: 0,
      runs: [{ rows: 12 }, { rows: 2 }],
    });
    const { createHash } = await import('node:crypto');
    expect(manifest.files).toHaveLength(3);
    for (const { path, bytes, sha256 } of manifest.files as { path: string; bytes: number; sha256: string }[]) {
      const body = objects.get(path) as Buffer;
      expect([body.length, createHash('sha256').update(body).digest('hex')]).toEqual([bytes, sha256]);
    }
  });
});

describe('membership', () => {
  it('is fixed at creation: runs that arrive later are neither exported nor duplicated, but counted', async () => {
    const at = nextDay();
    const ids = await shop.store(25, at);
    const made = await shop.create({ startTimeMicros: at, endTimeMicros: at + dayMicros });
    const late = Date.now() * 1_000 + 60_000_000;
    // Late runs arrive before the export starts, and while its run is in progress.
    await shop.store(2, at + 500_000, late);
    await shop.start(made.id);
    const [run] = await shop.runs(made.id);
    let found = 0;
    const worker = shop.worker({
      openSource: (...scope) => {
        const source = shop.deps.openSource(...scope);
        return {
          ...source,
          find: async (after, signal) => {
            if (found++ === 1) await shop.store(3, at + 2_250_000, late);
            return source.find(after, signal);
          },
        };
      },
    });
    await worker.attempt(run?.id ?? '');
    expect(await shop.exportedIds(made.id)).toEqual(ids);
    expect((await shop.runs(made.id))[0]).toMatchObject({ status: 'COMPLETED', rowsWritten: 25, lateRuns: 5 });
    expect(await shop.read(made.id)).toMatchObject({ lateRuns: 5 });
  });

  it('tolerates runs that are deleted between find and read', async () => {
    const at = nextDay();
    const ids = await shop.store(20, at);
    const made = await shop.create({ startTimeMicros: at, endTimeMicros: at + dayMicros });
    await shop.start(made.id);
    const [run] = await shop.runs(made.id);
    let reads = 0;
    const worker = shop.worker({
      openSource: (...scope) => {
        const source = shop.deps.openSource(...scope);
        return {
          ...source,
          read: async (chunk, folder, signal) => {
            if (reads++ === 0) {
              const deletedIds = ids.slice(0, 10).map((id) => `'${id}'`);
              const deletion = (stored: string) =>
                `ALTER TABLE ${stored} DELETE WHERE id IN (${deletedIds}) SETTINGS mutations_sync = 1`;
              await runOnStoredTable(shop.clickhouse, 'runs', deletion);
            }
            return source.read(chunk, folder, signal);
          },
        };
      },
    });
    await worker.attempt(run?.id ?? '');
    expect(await shop.exportedIds(made.id)).toEqual(ids.slice(10));
    expect((await shop.runs(made.id))[0]).toMatchObject({ status: 'COMPLETED', rowsWritten: 10 });
  });
});

/**
 * Starts a worker that dies at this step: the pending call never returns, and the worker no longer renews its lease.
 * The test then expires the lease.
 */
function dyingWorker(death: Death) {
  const { promise: dead, resolve: died } = deferred();
  const worker = shop.worker(
    createDyingDeps(shop.deps, death, () => {
      died();
      return new Promise<never>(() => undefined);
    }),
  );
  return { worker, dead };
}

describe('after a crash', () => {
  const at = day('2024-06-01');
  let ids: string[];
  let undisturbed: Map<string, string>;
  beforeAll(async () => {
    ids = await shop.store(34, at);
    const made = await shop.create({ startTimeMicros: at, endTimeMicros: at + dayMicros });
    await shop.work();
    undisturbed = await shop.files(made.id);
  });

  it.each(pickSome(deaths, 1 / 3))(
    '$when $step ($time), the next worker exports the rest and nothing twice',
    async (death) => {
      const made = await shop.create({ startTimeMicros: at, endTimeMicros: at + dayMicros });
      await shop.start(made.id);
      const [{ id: runId } = { id: '' }] = await shop.runs(made.id);
      const { worker, dead } = dyingWorker(death);
      void worker.attempt(runId).catch(() => undefined);
      await dead;
      await worker.lose(runId);
      const recorded = await shop.recorded(made.id);
      shop.clock.now = new Date(shop.clock.now.getTime() + 1_000);
      // While the dead worker still records an earlier file, the row is locked and the run is not due.
      const next = shop.worker();
      await until('the next worker to claim the run', () => next.attempt(runId));
      const [run] = await shop.runs(made.id);
      expect(run).toMatchObject({
        status: 'COMPLETED',
        rowsWritten: 34,
        retryNumber: 0,
        errors: null,
        pendingUpload: null,
      });
      expect(await shop.exportedIds(made.id)).toEqual(ids);
      expect(await shop.files(made.id)).toEqual(undisturbed);
      expect((await shop.recorded(made.id)).slice(0, recorded.length)).toEqual(recorded);
      worker.attempts.stop();
    },
  );

  it('a file that was not recorded is replaced by one without rows if its runs have been deleted', async () => {
    const at = nextDay();
    const ids = await shop.store(15, at);
    const made = await shop.create({ startTimeMicros: at, endTimeMicros: at + dayMicros });
    await shop.start(made.id);
    const [{ id: runId } = { id: '' }] = await shop.runs(made.id);
    const uploadOnly = shop.worker({
      openStore: async (of) => {
        const store = await shop.deps.openStore(of);
        const upload: typeof store.upload = async (...options) => {
          await store.upload(...options);
          throw runlakeError('DESTINATION_UNAVAILABLE', failureParams);
        };
        return { ...store, upload };
      },
    });
    await uploadOnly.attempt(runId);
    const deletedIds = ids.slice(0, 10).map((id) => `'${id}'`);
    const deletion = (stored: string) =>
      `ALTER TABLE ${stored} DELETE WHERE id IN (${deletedIds}) SETTINGS mutations_sync = 1`;
    await runOnStoredTable(shop.clickhouse, 'runs', deletion);
    await shop.worker().attempt(runId);
    expect((await shop.runs(made.id))[0]).toMatchObject({ status: 'COMPLETED', rowsWritten: 5, pendingUpload: null });
    expect(await shop.exportedIds(made.id)).toEqual(ids.slice(10));
    expect((await shop.recorded(made.id)).map(({ part, rows }) => [part, rows])).toEqual([
      [1, 0],
      [2, 5],
    ]);
    const keys = [...(await shop.objects()).keys()].filter((key) => key.includes(made.id) && key.endsWith('.parquet'));
    expect(keys).toHaveLength(2);
  });
});

describe('the fencing token', () => {
  it('lets only the worker with the newest claim write', async () => {
    const at = nextDay();
    const ids = await shop.store(34, at);
    const made = await shop.create({ startTimeMicros: at, endTimeMicros: at + dayMicros });
    await shop.start(made.id);
    const [{ id: runId } = { id: '' }] = await shop.runs(made.id);
    const { promise: halfway, resolve: arrived } = deferred();
    const { promise: held, resolve: resume } = deferred();
    let uploads = 0;
    const slow = shop.worker({
      openStore: async (destination) => {
        const store = await shop.deps.openStore(destination);
        return {
          ...store,
          upload: async (...args) => {
            if (++uploads === 2) {
              arrived();
              await held;
            }
            return store.upload(...args);
          },
        };
      },
    });
    const first = slow.attempt(runId);
    await halfway;
    // While the lease is valid, no other worker starts.
    await shop.worker().attempt(runId);
    expect((await shop.runs(made.id))[0]).toMatchObject({ status: 'RUNNING', fence: 1 });
    await slow.lose(runId);
    await shop.worker().attempt(runId);
    expect((await shop.runs(made.id))[0]).toMatchObject({ status: 'COMPLETED', fence: 2, rowsWritten: 34 });
    resume();
    // The first worker stops silently: no error, no retry, nothing written.
    await first;
    expect((await shop.runs(made.id))[0]).toMatchObject({ status: 'COMPLETED', rowsWritten: 34, retryNumber: 0 });
    expect(await shop.exportedIds(made.id)).toEqual(ids);
    expect(await shop.read(made.id)).toMatchObject({ status: 'COMPLETED', files: 4 });
  });

  it('refuses to record a file after the export ended', async () => {
    const at = nextDay();
    await shop.store(12, at);
    const made = await shop.create({ startTimeMicros: at, endTimeMicros: at + dayMicros });
    await shop.start(made.id);
    const [{ id: runId } = { id: '' }] = await shop.runs(made.id);
    let uploads = 0;
    const worker = shop.worker({
      openStore: async (destination) => {
        const store = await shop.deps.openStore(destination);
        return {
          ...store,
          upload: async (...args) => {
            const uploaded = await store.upload(...args);
            if (++uploads === 2) await finishExport(shop.deps, made.id, { to: 'CANCELLED', reason: null });
            return uploaded;
          },
        };
      },
    });
    await worker.attempt(runId);
    const [run] = await shop.runs(made.id);
    expect(run).toMatchObject({ status: 'CANCELLED', rowsWritten: 10, pendingUpload: null });
    // The finished file remains and is listed; a file that is not listed is removed.
    const keys = [...(await shop.objects()).keys()].filter((key) => key.includes(made.id));
    expect(keys).toEqual(run?.paths);
  });
});
