/** A process with only the export workers, which kills itself or waits at the configured step. */
import { once } from 'node:events';
import { openClickHouse } from '../../infra/clickhouse/client.ts';
import { loadConfig } from '../../infra/config/load.ts';
import { openEncoderPool } from '../../infra/duckdb/encoder.ts';
import { openInProcessLog } from '../../infra/event-log/in-process/in-process-log.ts';
import { openJobs } from '../../infra/jobs/open-jobs.ts';
import { openDatabase } from '../../infra/postgres/pool.ts';
import { createLogger } from '../../infra/telemetry/logger.ts';
import { createDestinationDeps } from '../../pipelines/exports/destinations/destination.ts';
import { openDestination } from '../../pipelines/exports/destinations/open-destination.ts';
import type { ExportWorkerDeps } from '../../pipelines/exports/export-deps.ts';
import { createChunkSources } from '../../pipelines/exports/parquet-writer.ts';
import { startExportWorkers } from '../../pipelines/exports/worker.ts';
import { topics } from '../../schemas/topics.ts';
import { createDyingDeps } from '../pipelines/exports/deaths.ts';
import type { WorkerOptions } from './export-worker.ts';

const options = JSON.parse(process.argv[2] ?? '{}') as WorkerOptions;
const logger = createLogger('warn', 'exports');
const timeoutMs = 30_000;
const clickhouse = openClickHouse({
  url: options.clickhouseUrl,
  cluster: options.clickhouseCluster,
  logger,
  timeoutMs,
});
const database = openDatabase({ url: options.databaseUrl, logger, timeoutMs });
const config = {
  ...loadConfig({}).config,
  localExportRoot: options.bucketRoot,
  allowPrivateEndpoints: true,
  ...options.limits,
};
const log = await openInProcessLog({ clickhouse, database, topics, partitions: 1, maxPendingBytes: 1e6, logger });
const jobs = await openJobs({ databaseUrl: options.databaseUrl, config: { redisUrl: options.redisUrl }, logger });
const destinations = createDestinationDeps(config, database, 'secret of the tests');
const deps: ExportWorkerDeps = {
  database,
  log,
  jobs,
  limits: config,
  logger,
  openStore: (destination) => openDestination(destinations, destination),
  openSource: createChunkSources(
    { clickhouse, encoders: openEncoderPool({ memoryLimitBytes: 256 * 1024 * 1024 }) },
    config,
  ),
};
let hasWaited = false;
const reached = async (): Promise<void> => {
  if (options.does === 'die') process.kill(process.pid, 'SIGKILL');
  if (hasWaited) return;
  hasWaited = true;
  process.send?.('there');
  await once(process, 'message');
};
await startExportWorkers(
  { ...(options.at === undefined ? deps : createDyingDeps(deps, options.at, reached)), jobs, leases: database },
  { workFolder: options.workFolder, concurrency: 2, sweepMs: 200 },
);
