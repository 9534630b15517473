import { randomUUID } from 'node:crypto';
import { mkdir, mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { loadConfig } from '../../../infra/config/load.ts';
import { openEncoderPool } from '../../../infra/duckdb/encoder.ts';
import { openInProcessLog } from '../../../infra/event-log/in-process/in-process-log.ts';
import type { S3Limits } from '../../../infra/objects/s3/s3-connection.ts';
import { type Database, openDatabase } from '../../../infra/postgres/pool.ts';
import { createExport, type NewExport } from '../../../pipelines/exports/create-cancel.ts';
import { createDestinationDeps } from '../../../pipelines/exports/destinations/destination.ts';
import { openDestination } from '../../../pipelines/exports/destinations/open-destination.ts';
import type { ExportLimits, ExportWorkerDeps } from '../../../pipelines/exports/export-deps.ts';
import { getLeaseTimeoutMs, LiveAttempts } from '../../../pipelines/exports/live-attempts.ts';
import { createChunkSources } from '../../../pipelines/exports/parquet-writer.ts';
import {
  type ExportRunWithFiles,
  type ExportWithProgress,
  listExportRuns,
  readExport,
} from '../../../pipelines/exports/queries.ts';
import { coordinateExport } from '../../../pipelines/exports/scheduler.ts';
import { attemptRun, openWorkFolders } from '../../../pipelines/exports/worker.ts';
import type { RunValues } from '../../../pipelines/ingest/run-event/run-event.ts';
import { topics } from '../../../schemas/topics.ts';
import { addOrganization } from '../../api/start-api.ts';
import { type FreshStores, freshStores } from '../../engines/stores.ts';
import { logger } from '../../silent-logger.ts';
import { insertEvents, runEvent } from '../runs/run-events.ts';
import { rowsOf } from './exporting.ts';

export interface RecordedFile {
  /** Path that the owner of the destination sees. */
  readonly path: string;
  readonly part: number;
  readonly rows: number;
  readonly bytes: number;
  readonly sha256: string;
  readonly createdAt: string;
}

type Job = { readonly name: string; readonly payload: Record<string, string>; readonly delayMs: number };

/** The exports of an installation without its processes: tests run each step themselves, at times that they choose. */
export type ExportsUnderTest = Awaited<ReturnType<typeof openExportsUnderTest>>;

export const day = (text: string) => Date.parse(`${text}T00:00:00Z`) * 1_000;

export interface ExportsUnderTestOptions {
  /** Stores to use; `close` also closes them. */
  readonly stores?: FreshStores;
  readonly s3Limits?: S3Limits;
  /** Clock of the worker. Default: the `clock` of the suite. */
  readonly now?: ExportWorkerDeps['now'];
}

export async function openExportsUnderTest(limits: Partial<ExportLimits> = {}, options: ExportsUnderTestOptions = {}) {
  const stores = options.stores ?? (await freshStores());
  const { database, clickhouse } = stores;
  const root = await mkdtemp(join(tmpdir(), 'runlake-exports-'));
  const [bucketRoot, workRoot] = [join(root, 'buckets'), join(root, 'work')];
  await mkdir(bucketRoot);
  const settings = { localExportRoot: bucketRoot, allowPrivateEndpoints: true };
  const config = { ...loadConfig({}).config, ...settings, exportSliceRows: 10, ...limits };
  const log = await openInProcessLog({ clickhouse, database, topics, partitions: 1, maxPendingBytes: 1e6, logger });
  const { workspaceIds } = await addOrganization(database, `org-${randomUUID()}`);
  const [workspaceId] = workspaceIds;
  const projectId = randomUUID();
  await database.execute('INSERT INTO projects (id, workspace_id, name, start_time) VALUES ($1, $2, $3, now())', [
    projectId,
    workspaceId,
    'p',
  ]);
  const destinationId = randomUUID();
  const destination = {
    bucket_name: null,
    prefix: 'made/by tests',
    region: null,
    endpoint_url: null,
    include_bucket_in_prefix: true,
    config_kwargs_s3: null,
  };
  await database.execute(
    `INSERT INTO bulk_export_destinations (id, workspace_id, destination_type, display_name, config)
     VALUES ($1, $2, 'local', 'd', $3)`,
    [destinationId, workspaceId, destination],
  );
  const destinations = { ...createDestinationDeps(config, database, 'secret of the tests'), limits: options.s3Limits };
  let areLeasesClosed = false;
  const leases = openDatabase({
    url: stores.databaseUrl,
    logger,
    timeoutMs: getLeaseTimeoutMs(config),
    maxConnections: 1,
  });
  const encoders = openEncoderPool({ memoryLimitBytes: config.exportEncoderBytes });
  const folders = await openWorkFolders(workRoot);
  const clock = { now: new Date() };
  const jobs: Job[] = [];
  const deps: ExportWorkerDeps = {
    database,
    log,
    jobs: {
      enqueue: async (name, payload, options) =>
        void jobs.push({ name, payload: payload as Record<string, string>, delayMs: options?.delayMs ?? 0 }),
    },
    limits: config,
    logger,
    now: 'now' in options ? options.now : async () => clock.now.getTime(),
    openStore: (place) => openDestination(destinations, place),
    openSource: createChunkSources({ clickhouse, encoders }, config),
  };

  /** Creates a worker that looks like a separate process in the database rows. */
  const worker = (more: Partial<ExportWorkerDeps> = {}) => {
    let stalled = false;
    let pendingQuery: Promise<unknown> = Promise.resolve();
    const query: Database['query'] = (...request) => {
      if (stalled) return new Promise<never>(() => undefined);
      const answer = leases.query<never>(...request);
      pendingQuery = answer.catch(() => undefined);
      return answer;
    };
    const attempts = new LiveAttempts({ ...leases, query }, config, logger);
    const work = { ...deps, ...more, attempts, folders };
    return {
      attempts,
      attempt: (runId: string) => attemptRun(work, runId),
      /** Blocks every further statement that renews leases: it gets no response. */
      stall: () => {
        stalled = true;
      },
      /** Stops renewing leases, as if the worker had died or stalled, and expires the lease of this run. */
      async lose(runId: string) {
        stalled = true;
        await pendingQuery;
        await database.execute(`UPDATE bulk_export_runs SET lease_until = now() - interval '1 s' WHERE id = $1`, [
          runId,
        ]);
      },
    };
  };
  const defaults = worker();

  /** Returns the records of finished files, in order. */
  const recorded = (exportId: string): Promise<RecordedFile[]> =>
    database.query<RecordedFile>(
      `SELECT path, part, rows, bytes, sha256, f.created_at AS "createdAt"
       FROM bulk_export_files AS f JOIN bulk_export_runs AS r ON r.id = f.bulk_export_run_id
       WHERE r.bulk_export_id = $1 ORDER BY r.start_time, part`,
      [exportId],
    );

  /** Returns all objects in the bucket, by key. */
  async function objects(): Promise<Map<string, Buffer>> {
    const found = new Map<string, Buffer>();
    for (const entry of await readdir(bucketRoot, { recursive: true, withFileTypes: true })) {
      if (!entry.isFile()) continue;
      const path = join(entry.parentPath, entry.name);
      found.set(relative(bucketRoot, path), await readFile(path));
    }
    return found;
  }

  const readRuns = (exportId: string): Promise<ExportRunWithFiles[]> =>
    listExportRuns(database, workspaceId, { exportId }, { limit: 10_000, offset: 0 });
  return {
    ...deps,
    deps,
    stores,
    clickhouse,
    workspaceId,
    projectId,
    destinations,
    destinationId,
    bucketRoot,
    workRoot,
    clock,
    jobs,
    worker,
    recorded,
    objects,

    create: (request: Partial<NewExport> = {}): Promise<ExportWithProgress> =>
      createExport(
        deps,
        { workspaceId, keyId: randomUUID() },
        {
          destinationId,
          projectId,
          startTimeMicros: day('2026-03-05'),
          endTimeMicros: request.intervalHours === undefined ? day('2026-03-06') : undefined,
          intervalHours: undefined,
          formatVersion: 'v2_beta',
          compression: 'zstandard',
          exportFields: ['id', 'name'],
          ...request,
        },
      ),

    read: (exportId: string) => readExport(database, workspaceId, exportId),
    runs: readRuns,
    async firstRun(exportId: string): Promise<ExportRunWithFiles> {
      const [run] = await readRuns(exportId);
      if (run === undefined) throw new Error('no run');
      return run;
    },

    /** Stores root runs from `startTimeMicros` on, one second apart. @returns their ids. */
    async store(
      count: number,
      startTimeMicros: number,
      receivedAtMicros = day('2026-03-01'),
      valuesOf: (place: number) => RunValues = () => ({}),
    ): Promise<string[]> {
      const events = Array.from({ length: count }, (_, place) =>
        runEvent({
          tenantId: workspaceId,
          projectId,
          startTimeMicros: startTimeMicros + place * 1_000_000,
          receivedAtMicros,
          values: valuesOf(place),
        }),
      );
      await insertEvents(clickhouse, events);
      return events.map(({ runId }) => runId);
    },

    start: (exportId: string) => coordinateExport(deps, exportId, new AbortController().signal),

    /** Runs the queued jobs and the jobs that they enqueue, without delays, until the queue is empty. */
    async work(): Promise<void> {
      for (let job = jobs.shift(); job !== undefined; job = jobs.shift()) {
        if (job.name === 'export-run') await defaults.attempt(job.payload.run_id ?? '');
        else if (job.name === 'coordinate-export') {
          await coordinateExport(deps, job.payload.export_id ?? '', new AbortController().signal);
        }
      }
    },

    /** Returns the contents of an export's files in the bucket, by day and part. */
    async files(exportId: string): Promise<Map<string, string>> {
      const files = [...(await objects())].filter(([key]) => key.includes(exportId) && key.endsWith('.parquet'));
      return new Map(
        files.map(([key, body]) => [
          key.replace(/.*\/day=(\d+)\/.*-(\d+)\.parquet$/, '$1 $2'),
          body.toString('base64'),
        ]),
      );
    },

    /**
     * Returns the ids in the recorded files of an export, in order. Each file must exist and contain the recorded
     * number of rows.
     */
    async exportedIds(exportId: string): Promise<string[]> {
      const ids: string[] = [];
      for (const { path, rows } of await recorded(exportId)) {
        const found = await rowsOf(join(bucketRoot, path));
        if (found.length !== rows) throw new Error(`${path} holds ${found.length} rows, not ${rows}`);
        ids.push(...found.map(({ id }) => String(id)));
      }
      return ids;
    },

    async close(): Promise<void> {
      defaults.attempts.stop();
      await encoders.close();
      await folders.close();
      await log.close();
      if (!areLeasesClosed) await leases.close();
      areLeasesClosed = true;
      await stores.close();
      await rm(root, { recursive: true, force: true });
    },
  };
}
