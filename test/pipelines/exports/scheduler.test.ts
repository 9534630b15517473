import { afterEach, describe, expect, it } from 'vitest';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { openJobs } from '../../../infra/jobs/open-jobs.ts';
import type { ObjectStore } from '../../../infra/objects/object-store.ts';
import { cancelExport } from '../../../pipelines/exports/create-cancel.ts';
import type { ExportLimits, ExportWorkerDeps } from '../../../pipelines/exports/export-deps.ts';
import { coordinateExport, sweepExports } from '../../../pipelines/exports/scheduler.ts';
import { startExportWorkers } from '../../../pipelines/exports/worker.ts';
import { untilAborted } from '../../infra/deferred.ts';
import { until } from '../../infra/until.ts';
import { logger } from '../../silent-logger.ts';
import { day, type ExportsUnderTest, openExportsUnderTest } from './exports-under-test.ts';

const dayMicros = 86_400_000_000;
const at = day('2026-03-05');
let shop: ExportsUnderTest;
afterEach(() => shop?.close());
const open = async (limits: Partial<ExportLimits> = {}) => {
  shop = await openExportsUnderTest(limits);
};

describe('an export stays CREATED', () => {
  it('until the events accepted before it are stored, with that as the reason', async () => {
    await open();
    const log = { stored: false, asked: [] as unknown[] };
    const deps: ExportWorkerDeps = {
      ...shop.deps,
      log: {
        position: shop.log.position,
        isStored: async (topic, position) => {
          log.asked.push([topic.name, position]);
          return log.stored;
        },
      },
    };
    const made = await shop.create();
    await shop.database.execute('UPDATE bulk_exports SET log_position = $2 WHERE id = $1', [
      made.id,
      { 'run-events': { 0: 7 } },
    ]);
    expect(made.statusReason).toMatch(/stored/);
    const signal = AbortSignal.timeout(50);
    await coordinateExport(deps, made.id, signal);
    await coordinateExport(deps, made.id, undefined, 0);
    expect(await shop.read(made.id)).toMatchObject({ status: 'CREATED', startedAt: null });
    const waiting = coordinateExport(deps, made.id, new AbortController().signal);
    await until('the coordinator to check the log', () => log.asked.length > 3);
    log.stored = true;
    await waiting;
    expect(log.asked[0]).toEqual(['run-events', { 0: 7 }]);
    expect(await shop.read(made.id)).toMatchObject({ status: 'RUNNING', statusReason: null });
  });

  it('while its workspace is at its limit of running exports, and starts when one of them ends', async () => {
    await open({ exportsPerWorkspace: 2 });
    const exports = [];
    for (let n = 0; n < 5; n++) {
      exports.push(await shop.create());
      shop.clock.now = new Date(shop.clock.now.getTime() + 1_000);
    }
    const ids = exports.map(({ id }) => id);
    await Promise.all(ids.map((id) => shop.start(id)));
    const statuses = async () => Promise.all(ids.map(async (id) => (await shop.read(id)).status));
    expect((await statuses()).filter((status) => status === 'RUNNING')).toHaveLength(2);
    const waiting = (await Promise.all(ids.map((id) => shop.read(id)))).filter(({ status }) => status === 'CREATED');
    expect(waiting[0]?.statusReason).toMatch(/fewer than 2/);
    const running = (await Promise.all(ids.map((id) => shop.read(id)))).find(({ status }) => status === 'RUNNING');
    const before = shop.jobs.length;
    await cancelExport(shop.deps, shop.workspaceId, running?.id ?? '');
    // The coordinator starts the oldest waiting export.
    expect(shop.jobs[before]).toMatchObject({ name: 'coordinate-export', payload: { export_id: waiting[0]?.id } });
    await shop.work();
    expect((await statuses()).sort()).toEqual(['CANCELLED', ...Array(4).fill('COMPLETED')]);
  });

  it('and does not start if its project was deleted', async () => {
    await open();
    const made = await shop.create();
    await shop.database.execute('UPDATE projects SET deleted_at = now() WHERE id = $1', [shop.projectId]);
    await shop.start(made.id);
    expect(await shop.read(made.id)).toMatchObject({ status: 'FAILED', statusReason: 'Its project was deleted.' });
  });
});

describe('an export that starts', () => {
  it('has one run for each UTC day of its range, clipped to the range', async () => {
    await open();
    const made = await shop.create({ startTimeMicros: at + 1, endTimeMicros: at + 3 * dayMicros + 5 });
    await Promise.all([shop.start(made.id), shop.start(made.id)]);
    const runs = await shop.runs(made.id);
    expect(runs.map(({ startTime, endTime }) => [startTime, endTime])).toEqual([
      ['2026-03-05T00:00:00.000001Z', '2026-03-06T00:00:00.000000Z'],
      ['2026-03-06T00:00:00.000000Z', '2026-03-07T00:00:00.000000Z'],
      ['2026-03-07T00:00:00.000000Z', '2026-03-08T00:00:00.000000Z'],
      ['2026-03-08T00:00:00.000000Z', '2026-03-08T00:00:00.000005Z'],
    ]);
    expect(runs.every(({ status, fence }) => status === 'CREATED' && fence === 0)).toBe(true);
  });

  it('processes more days than may run at once', async () => {
    await open({ exportRunsAtOnce: 3 });
    const made = await shop.create({ endTimeMicros: at + 20 * dayMicros });
    const ids = await shop.store(3, at + 19 * dayMicros);
    await shop.start(made.id);
    expect(shop.jobs.filter(({ name }) => name === 'export-run')).toHaveLength(3);
    await shop.work();
    expect(await shop.read(made.id)).toMatchObject({ status: 'COMPLETED', runsTotal: 20, runsCompleted: 20 });
    expect(await shop.exportedIds(made.id)).toEqual(ids);
  });

  it('fails if its manifest can never be written, and retries later after a temporary failure', async () => {
    await open();
    const finished = async () => {
      const made = await shop.create();
      await shop.start(made.id);
      await shop.database.execute(
        `UPDATE bulk_export_runs SET status = 'COMPLETED', finished_at = now() WHERE bulk_export_id = $1`,
        [made.id],
      );
      return made.id;
    };
    const failing = (code: `DESTINATION_${'ACCESS_DENIED' | 'ENDPOINT_INVALID' | 'UNAVAILABLE'}`) => ({
      ...shop.deps,
      openStore: async (destination: Parameters<ExportWorkerDeps['openStore']>[0]) => ({
        ...(await shop.deps.openStore(destination)),
        put: async () => Promise.reject(runlakeError(code, { step: 'write', reason: 'r', where: 'w' })),
      }),
    });
    const { signal } = new AbortController();
    const now = await finished();
    for (const code of ['DESTINATION_UNAVAILABLE', 'DESTINATION_ENDPOINT_INVALID'] as const) {
      await expect(coordinateExport(failing(code), now, signal)).rejects.toMatchObject({ code });
      expect((await shop.read(now)).status).toBe('RUNNING');
    }
    await sweepExports(shop.deps);
    await shop.work();
    expect(await shop.read(now)).toMatchObject({ status: 'COMPLETED', manifestAt: expect.any(String) });
    const never = await finished();
    await coordinateExport(failing('DESTINATION_ACCESS_DENIED'), never, signal);
    const failed = await shop.read(never);
    expect(failed).toMatchObject({ status: 'FAILED', manifestAt: null });
    expect(failed.statusReason).toContain('manifest');
  });
});

type Stat = ObjectStore['stat'];

/** Adds an export whose only export run is COMPLETED, with this number of recorded files. @returns its id. */
async function addFinished(files: number): Promise<string> {
  const made = await shop.create();
  await shop.start(made.id);
  const [run] = await shop.database.query<{ id: string }>(
    `UPDATE bulk_export_runs SET status = 'COMPLETED', finished_at = now() WHERE bulk_export_id = $1 RETURNING id`,
    [made.id],
  );
  await shop.database.execute(
    `INSERT INTO bulk_export_files (bulk_export_run_id, part, path, rows, bytes, sha256)
     SELECT $1, part, 'p' || part, 1, 1, 's' FROM generate_series(1, $2::int) AS part`,
    [run?.id, files],
  );
  return made.id;
}

/** Replaces `stat` of the stores. `asked` counts the calls, from 1. */
function withStat(stat: (asked: number, signal: AbortSignal | undefined) => ReturnType<Stat>) {
  let asked = 0;
  const openStore: ExportWorkerDeps['openStore'] = async (destination) => ({
    ...(await shop.deps.openStore(destination)),
    stat: (_key, options) => {
      asked += 1;
      return stat(asked, options?.signal);
    },
  });
  return { deps: { ...shop.deps, openStore }, asked: () => asked };
}

const countChecked = async () => {
  const [row] = await shop.database.query<{ value: number }>(
    'SELECT count(*)::int AS value FROM bulk_export_files WHERE checked_at IS NOT NULL',
  );
  return row?.value;
};

describe('the check of files', () => {
  const present = { bytes: 1, etag: undefined };

  it('ends at the deadline of the sweep, and the next sweep continues it', async () => {
    await open();
    const id = await addFinished(200);
    const hanging = withStat((asked, signal) => (asked <= 50 ? Promise.resolve(present) : untilAborted(signal)));
    await sweepExports(hanging.deps, undefined, 1_000);
    expect((await shop.read(id)).status).toBe('RUNNING');
    expect(await countChecked()).toBe(50);
    const repaired = withStat(async () => present);
    await sweepExports(repaired.deps);
    expect((await shop.read(id)).status).toBe('COMPLETED');
    expect(repaired.asked()).toBe(150);
  });

  it('ends at the first error, and keeps its progress', async () => {
    await open();
    const id = await addFinished(200);
    const failing = withStat(async (asked) => {
      if (asked > 50) throw runlakeError('DESTINATION_UNAVAILABLE', { step: 'read', reason: 'r', where: 'w' });
      return present;
    });
    await expect(coordinateExport(failing.deps, id)).rejects.toMatchObject({ code: 'DESTINATION_UNAVAILABLE' });
    expect(failing.asked()).toBeLessThanOrEqual(58);
    expect(await countChecked()).toBe(50);
  });

  it('does not ask for each file of a destination that denies reading', async () => {
    await open();
    const id = await addFinished(200);
    const denying = withStat(async () => {
      throw runlakeError('DESTINATION_ACCESS_DENIED', { step: 'read', reason: 'r', where: 'w' });
    });
    await sweepExports(denying.deps);
    expect((await shop.read(id)).status).toBe('COMPLETED');
    expect(denying.asked()).toBeLessThan(30);
    const manifest = [...(await shop.objects())].find(([key]) => key.endsWith('_manifest.json'))?.[1];
    expect(JSON.parse(String(manifest))).toMatchObject({ unchecked_files: 200 });
  });

  it('ends when the process of the attempt stops', async () => {
    await open();
    await shop.store(1, at);
    const made = await shop.create();
    await shop.start(made.id);
    const [run] = await shop.runs(made.id);
    const hanging = withStat((_asked, signal) => untilAborted(signal));
    const worker = shop.worker(hanging.deps);
    const attempt = worker.attempt(run?.id ?? '');
    await until('the check', () => hanging.asked() > 0);
    worker.attempts.stop();
    expect(await attempt).toBe(true);
    expect((await shop.read(made.id)).status).toBe('RUNNING');
  });
});

describe('the manifest', () => {
  it('stays when two processes detect the end of an export at the same moment', async () => {
    await open();
    const made = await shop.create();
    await shop.start(made.id);
    await shop.database.execute(
      `UPDATE bulk_export_runs SET status = 'COMPLETED', finished_at = now() WHERE bulk_export_id = $1`,
      [made.id],
    );
    await Promise.all([1, 2, 3, 4].map(() => shop.start(made.id)));
    expect((await shop.read(made.id)).status).toBe('COMPLETED');
    expect([...(await shop.objects()).keys()]).toEqual([expect.stringMatching(/_manifest\.json$/)]);
  });

  it('is removed if the export was cancelled while it was written', async () => {
    await open();
    const made = await shop.create();
    await shop.start(made.id);
    await shop.database.execute(
      `UPDATE bulk_export_runs SET status = 'COMPLETED', finished_at = now() WHERE bulk_export_id = $1`,
      [made.id],
    );
    const deps: ExportWorkerDeps = {
      ...shop.deps,
      openStore: async (destination) => {
        const store = await shop.deps.openStore(destination);
        return {
          ...store,
          put: async (...args) => {
            await store.put(...args);
            await cancelExport(shop.deps, shop.workspaceId, made.id);
          },
        };
      },
    };
    await coordinateExport(deps, made.id);
    expect(await shop.read(made.id)).toMatchObject({ status: 'CANCELLED', manifestAt: null });
    expect([...(await shop.objects()).keys()]).toEqual([]);
  });
});

describe('with queues and workers', () => {
  /** Uses the queue on the database of the suite, or on the Redis of the stack. */
  async function useWorkers(
    work: (start: () => Promise<() => Promise<void>>) => Promise<void>,
    more: Partial<ExportWorkerDeps> = {},
  ) {
    const ends: (() => Promise<void>)[] = [];
    const start = async () => {
      const redisUrl = shop.stores.environment.RUNLAKE_REDIS_URL;
      const jobs = await openJobs({ databaseUrl: shop.stores.databaseUrl, config: { redisUrl }, logger });
      const workers = await startExportWorkers(
        { ...shop.deps, ...more, jobs, leases: shop.database, now: undefined },
        { workFolder: shop.workRoot, concurrency: 2, sweepMs: 200 },
      );
      const end = async () => {
        ends.splice(ends.indexOf(end), 1);
        await workers.stop();
        await jobs.close();
      };
      ends.push(end);
      return end;
    };
    try {
      await work(start);
    } finally {
      for (const end of [...ends]) await end();
    }
  }

  it('stop while a bucket does not respond to the check of files', async () => {
    await open();
    await addFinished(200);
    const created = await shop.create();
    const slow = withStat((_asked, signal) => untilAborted(signal));
    await useWorkers(async (start) => {
      const end = await start();
      // Its first run ends by an attempt of these workers, the other export by a sweep.
      await until('both checks', async () => {
        const [run] = await shop.runs(created.id);
        return run?.status === 'COMPLETED' && slow.asked() >= 9;
      });
      await end();
    }, slow.deps);
  });

  it('a lost queue is rebuilt from the rows: waiting exports, running exports, and export runs that are due', async () => {
    await open({ exportRetryDelayMs: 100, exportRunsAtOnce: 3 });
    const ids = await shop.store(25, at);
    // None of these jobs had been queued before.
    const created = await shop.create();
    const running = await shop.create({ endTimeMicros: at + 5 * dayMicros });
    await shop.start(running.id);
    const [crashed] = await shop.runs(running.id);
    await shop.database.execute(
      `UPDATE bulk_export_runs SET status = 'RUNNING', fence = 5, attempt_started_at = now(),
         lease_until = now() + interval '1 s' WHERE id = $1`,
      [crashed?.id],
    );
    await useWorkers(async (start) => {
      await start();
      await until(
        'both exports to end',
        async () => {
          const statuses = await Promise.all([created, running].map(async ({ id }) => (await shop.read(id)).status));
          return statuses.every((status) => status === 'COMPLETED');
        },
        30_000,
      );
    });
    expect(await shop.exportedIds(created.id)).toEqual(ids);
    expect(await shop.exportedIds(running.id)).toEqual(ids);
    expect((await shop.runs(running.id))[0]).toMatchObject({ fence: 6, retryNumber: 0 });
  });

  it('two processes share the runs of an export, and each day is exported once', async () => {
    await open();
    const ids: string[] = [];
    for (let n = 0; n < 8; n++) ids.push(...(await shop.store(12, at + n * dayMicros)));
    const made = await shop.create({ endTimeMicros: at + 8 * dayMicros });
    await useWorkers(async (start) => {
      await Promise.all([start(), start()]);
      await until('the export to end', async () => (await shop.read(made.id)).status === 'COMPLETED', 30_000);
    });
    expect(await shop.exportedIds(made.id)).toEqual(ids);
    expect((await shop.runs(made.id)).every(({ fence }) => fence === 1)).toBe(true);
  });

  it('a process that stops half-way releases its runs to the next one without a retry', async () => {
    await open({ exportSliceRows: 5 });
    const ids = await shop.store(100, at);
    const made = await shop.create();
    await useWorkers(async (start) => {
      const end = await start();
      await until('some files to be recorded', async () => (await shop.read(made.id)).files >= 2, 30_000);
      await end();
      expect((await shop.runs(made.id))[0]).toMatchObject({ retryNumber: 0, errors: null });
      await start();
      await until('the export to end', async () => (await shop.read(made.id)).status === 'COMPLETED', 30_000);
    });
    expect(await shop.exportedIds(made.id)).toEqual(ids);
    expect((await shop.runs(made.id))[0]).toMatchObject({ retryNumber: 0 });
  });
});
