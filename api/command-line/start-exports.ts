import { resolve } from 'node:path';
import { openEncoderPool } from '../../infra/duckdb/encoder.ts';
import type { Jobs } from '../../infra/jobs/jobs.ts';
import { openDatabase } from '../../infra/postgres/pool.ts';
import { readTrustedAuthorities } from '../../infra/tls/trusted-authorities.ts';
import { createDestinationDeps } from '../../pipelines/exports/destinations/destination.ts';
import { openDestination } from '../../pipelines/exports/destinations/open-destination.ts';
import { getLeaseTimeoutMs } from '../../pipelines/exports/live-attempts.ts';
import { createChunkSources } from '../../pipelines/exports/parquet-writer.ts';
import { startExportWorkers } from '../../pipelines/exports/worker.ts';
import type { RoleParts } from './open-stores.ts';
import type { ShutdownSteps } from './shutdown-steps.ts';

/**
 * Starts the workers of bulk exports, for the roles `all` and `exports`. At shutdown, the workers stop before the job
 * queue; otherwise the queue would wait for an export run, which can take hours.
 *
 * @throws the errors of the work folder and of the job queue.
 */
export async function startExports(
  parts: RoleParts & {
    readonly databaseUrl: string;
    readonly jobs: Jobs;
    /** Key that decrypts the credentials of destinations. Must be the same on all processes. */
    readonly secretKey: string;
  },
  shutdown: ShutdownSteps,
): Promise<void> {
  const { config, logger, databaseUrl, log, jobs, secretKey } = parts;
  const { database, clickhouse } = parts.stores;
  const encoderPool = openEncoderPool({ memoryLimitBytes: config.exportEncoderBytes });
  shutdown.add('encoders', () => encoderPool.close());
  const destinations = createDestinationDeps(config, database, secretKey);
  const leaseDatabase = openDatabase({
    url: databaseUrl,
    authorities: readTrustedAuthorities(config),
    logger,
    timeoutMs: getLeaseTimeoutMs(config),
    maxConnections: 1,
  });
  shutdown.add('leases of export runs', () => leaseDatabase.close());
  const workers = await startExportWorkers(
    {
      database,
      leases: leaseDatabase,
      log,
      jobs,
      limits: config,
      logger,
      openStore: (destination) => openDestination(destinations, destination),
      openSource: createChunkSources({ clickhouse, encoders: encoderPool }, config),
    },
    {
      workFolder: resolve(`${config.dataDir}/exports`),
      concurrency: config.exportConcurrency,
      sweepMs: config.exportSweepMs,
    },
  );
  shutdown.add('bulk exports', () => workers.stop());
}
