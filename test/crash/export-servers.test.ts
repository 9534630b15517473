/** Kills and restarts the servers that a bulk export uses while it runs; the test has its own servers. */

import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { stackPart } from '../engines/stack.ts';
import { freshStores } from '../engines/stores.ts';
import { forSuite } from '../for-suite.ts';
import { pickSome } from '../house/extent.ts';
import { until } from '../infra/until.ts';
import type { Death } from '../pipelines/exports/deaths.ts';
import { day, type ExportsUnderTest, openExportsUnderTest } from '../pipelines/exports/exports-under-test.ts';
import { type ExportWorker, exportWorkers } from './export-worker.ts';
import { startServersByName } from './own-servers.ts';

vi.setConfig({ testTimeout: 300_000, hookTimeout: 300_000 });

const deadlineMs = 120_000;
const dayMicros = 86_400_000_000;
const at = day('2026-03-05');
/** Rows by day. Chunks have ten rows. */
const rows = [34, 12, 5];

describe.runIf(stackPart('redis'))('servers of a running export', () => {
  const own = forSuite(() => startServersByName(['clickhouse', 'postgres', 'redis']));
  let shop: ExportsUnderTest;
  let ids: string[];
  let undisturbed: Map<string, string>;
  const workers = exportWorkers(() => shop);
  const create = () => shop.create({ endTimeMicros: at + rows.length * dayMicros });

  beforeAll(async () => {
    const { cluster } = own.clickhouse.values;
    const url = (name: 'clickhouse' | 'postgres' | 'redis') => own[name].values.url ?? '';
    const stores = await freshStores({
      on: {
        ...{ clickhouseUrl: url('clickhouse'), databaseUrl: url('postgres'), redisUrl: url('redis') },
        ...(cluster !== undefined && { clickhouseCluster: cluster }),
      },
    });
    shop = await openExportsUnderTest({}, { stores });
    ids = [];
    for (const [index, count] of rows.entries()) ids.push(...(await shop.store(count, at + index * dayMicros)));
    const { id } = await create();
    await shop.work();
    undisturbed = await shop.files(id);
    expect(undisturbed.size).toBe(7);
  });
  afterEach(() => workers.end());
  afterAll(async () => {
    await shop?.close();
  });

  interface Killing {
    readonly server: 'clickhouse' | 'postgres' | 'redis';
    /** Step of the worker when the server is killed. */
    readonly step: Death['step'];
    readonly when: Death['when'];
    readonly time: number;
    /** Returns true when the worker has detected the failure. */
    hasDetected(worker: ExportWorker, exportId: string): Promise<boolean> | boolean;
    /** Whether the export run is retried; undefined if that depends on how long the server was away. */
    readonly isRetried: boolean | undefined;
  }
  const hasRetried = async (_worker: ExportWorker, exportId: string) => {
    const [run] = await shop.runs(exportId);
    return run?.errors?.retry_0?.startsWith('ClickHouse cannot be reached') ?? false;
  };
  const hasLogged = (text: RegExp) => (worker: ExportWorker) => text.test(worker.output());
  const sweepFails = hasLogged(/a step of the export sweep failed/);
  const killings: readonly Killing[] = [
    // Each export run enqueues the job for the run of the next day.
    {
      server: 'redis',
      step: 'read',
      when: 'before',
      time: 2,
      hasDetected: hasLogged(/the job queues lost their connection to Redis/),
      isRetried: false,
    },
    { server: 'clickhouse', step: 'find', when: 'before', time: 2, hasDetected: hasRetried, isRetried: true },
    { server: 'clickhouse', step: 'read', when: 'before', time: 3, hasDetected: hasRetried, isRetried: true },
    { server: 'postgres', step: 'upload', when: 'before', time: 2, hasDetected: sweepFails, isRetried: undefined },
    { server: 'postgres', step: 'record', when: 'after', time: 2, hasDetected: sweepFails, isRetried: undefined },
  ];
  test.each(pickSome(killings, 1 / 2))(
    '$server is killed $when a $step and restarted: the export continues without intervention and is complete',
    async (killing) => {
      const { server, step, when, time, hasDetected } = killing;
      const { id } = await create();
      const limits = { exportRunsAtOnce: 1, exportRetryDelayMs: 1_000, exportSliceRows: 10 };
      const worker = workers.start({ at: { step, when, time }, does: 'wait', limits });
      await worker.arrived();
      const recorded = await shop.recorded(id);
      expect(await shop.read(id)).toMatchObject({ status: 'RUNNING', runsCompleted: 0 });
      await own[server].kill();
      worker.resume();
      await until('the worker to detect the failure', () => hasDetected(worker, id), deadlineMs);
      await own[server].start();
      await until('the export to end', async () => (await shop.read(id)).finishedAt !== null, deadlineMs);
      const made = await shop.read(id);
      expect(made).toMatchObject({ status: 'COMPLETED', rowsWritten: 51, files: 7, runsCompleted: 3 });
      expect((await shop.runs(id)).map(({ rowsWritten }) => rowsWritten)).toEqual(rows);
      expect(await shop.exportedIds(id)).toEqual(ids);
      expect(await shop.files(id)).toEqual(undisturbed);
      expect((await shop.recorded(id)).slice(0, recorded.length)).toEqual(recorded);
      if (killing.isRetried !== undefined) expect(made.retries > 0).toBe(killing.isRetried);
    },
  );
});
