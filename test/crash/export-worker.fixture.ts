/** A process with the workers of exports and nothing else, which kills itself where it is told. */

import { openWarehouse } from '../../infra/clickhouse/client.ts';
import { loadConfig } from '../../infra/config/load.ts';
import { openEncoderPool } from '../../infra/duckdb/encoder-pool.ts';
import { openInProcessLog } from '../../infra/event-log/in-process/in-process-log.ts';
import { openJobs } from '../../infra/jobs/open-jobs.ts';
import { openDatabase } from '../../infra/postgres/pool.ts';
import { createLogger } from '../../infra/telemetry/logger.ts';
import { destinationPorts } from '../../pipelines/exports/destinations/destination-ports.ts';
import { openDestination } from '../../pipelines/exports/destinations/open-destination.ts';
import type { WorkPorts } from '../../pipelines/exports/export-ports.ts';
import { sliceSources } from '../../pipelines/exports/slice-sources.ts';
import { startExportWorkers } from '../../pipelines/exports/start-export-workers.ts';
import { topics } from '../../schemas/topics.ts';
import { type Death, portsThatDie } from '../pipelines/exports/deaths.ts';

const told = JSON.parse(process.argv[2] ?? '{}') as {
  clickhouseUrl: string;
  databaseUrl: string;
  redisUrl?: string;
  bucketRoot: string;
  workFolder: string;
  death?: Death;
};
const logger = createLogger('warn', 'exports');
const timeoutMs = 30_000;
const warehouse = openWarehouse({ url: told.clickhouseUrl, logger, timeoutMs });
const database = openDatabase({ url: told.databaseUrl, logger, timeoutMs });
const config = {
  ...loadConfig({}).config,
  localExportRoot: told.bucketRoot,
  exportSliceRows: 10,
  exportLeaseMs: 3_000,
};
const log = await openInProcessLog({ database, topics, partitions: 1, maxPendingBytes: 1e6, logger });
const jobs = await openJobs({ databaseUrl: told.databaseUrl, redisUrl: told.redisUrl, logger });
const destinations = destinationPorts(config, database, 'secret of the tests');
const ports: WorkPorts = {
  database,
  log,
  jobs,
  limits: config,
  logger,
  now: () => new Date(),
  openStore: (place) => openDestination(destinations, place),
  openSource: sliceSources({ warehouse, encoders: openEncoderPool({ memoryLimitBytes: 256 * 1024 * 1024 }) }, config),
};
const die = () => {
  process.kill(process.pid, 'SIGKILL');
  return new Promise<never>(() => undefined);
};
await startExportWorkers(
  { ...(told.death === undefined ? ports : portsThatDie(ports, told.death, die)), jobs },
  { workFolder: told.workFolder, concurrency: 2, sweepMs: 200 },
);
