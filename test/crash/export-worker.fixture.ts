/** A process with the workers of exports and nothing else, which kills itself, or waits, where it is told. */
import { once } from 'node:events';
import { openClickHouse } from '../../infra/clickhouse/client.ts';
import { loadConfig } from '../../infra/config/load.ts';
import { openEncoderPool } from '../../infra/duckdb/encoder-pool.ts';
import { openInProcessLog } from '../../infra/event-log/in-process/in-process-log.ts';
import { openJobs } from '../../infra/jobs/open-jobs.ts';
import { openDatabase } from '../../infra/postgres/pool.ts';
import { createLogger } from '../../infra/telemetry/logger.ts';
import { destinationDeps } from '../../pipelines/exports/destinations/destination-deps.ts';
import { openDestination } from '../../pipelines/exports/destinations/open-destination.ts';
import type { WorkDeps } from '../../pipelines/exports/export-deps.ts';
import { sliceSources } from '../../pipelines/exports/slice-sources.ts';
import { startExportWorkers } from '../../pipelines/exports/start-export-workers.ts';
import { topics } from '../../schemas/topics.ts';
import { portsThatDie } from '../pipelines/exports/deaths.ts';
import type { ToldToWorker } from './export-worker.ts';

const told = JSON.parse(process.argv[2] ?? '{}') as ToldToWorker;
const logger = createLogger('warn', 'exports');
const timeoutMs = 30_000;
const clickhouse = openClickHouse({ url: told.clickhouseUrl, logger, timeoutMs });
const database = openDatabase({ url: told.databaseUrl, logger, timeoutMs });
const config = {
  ...loadConfig({}).config,
  localExportRoot: told.bucketRoot,
  allowPrivateEndpoints: true,
  ...told.limits,
};
const log = await openInProcessLog({ database, topics, partitions: 1, maxPendingBytes: 1e6, logger });
const jobs = await openJobs({ databaseUrl: told.databaseUrl, redisUrl: told.redisUrl, logger });
const destinations = destinationDeps(config, database, 'secret of the tests');
const deps: WorkDeps = {
  database,
  log,
  jobs,
  limits: config,
  logger,
  now: () => new Date(),
  openStore: (place) => openDestination(destinations, place),
  openSource: sliceSources({ clickhouse, encoders: openEncoderPool({ memoryLimitBytes: 256 * 1024 * 1024 }) }, config),
};
let hasWaited = false;
const reached = async (): Promise<void> => {
  if (told.does === 'die') process.kill(process.pid, 'SIGKILL');
  if (hasWaited) return;
  hasWaited = true;
  process.send?.('there');
  await once(process, 'message');
};
await startExportWorkers(
  { ...(told.at === undefined ? deps : portsThatDie(deps, told.at, reached)), jobs },
  { workFolder: told.workFolder, concurrency: 2, sweepMs: 200 },
);
