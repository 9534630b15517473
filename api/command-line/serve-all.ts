import type { AddressInfo } from 'node:net';
import type { Config } from '../../infra/config/settings.ts';
import type { DataFolder } from '../../infra/embedded/data-folder.ts';
import { keepSecretKey } from '../../infra/embedded/secret-key.ts';
import { fault } from '../../infra/errors/runlake-error.ts';
import { type InProcessLog, openInProcessLog } from '../../infra/event-log/in-process/in-process-log.ts';
import type { Jobs } from '../../infra/jobs/jobs.ts';
import { openJobs } from '../../infra/jobs/open-jobs.ts';
import { migrate } from '../../infra/migrations/migrate.ts';
import { type SessionLock, takeSessionLock } from '../../infra/postgres/session-lock.ts';
import { createTokenSigner } from '../../infra/signing/token-signer.ts';
import type { Logger } from '../../infra/telemetry/logger.ts';
import { RunPlaces } from '../../pipelines/ingest/accept/run-places.ts';
import { expireParkedEvents } from '../../pipelines/ingest/expire-parked-events.ts';
import { countRuns } from '../../pipelines/ingest/ingest-metrics.ts';
import { Sink } from '../../pipelines/ingest/sink/sink.ts';
import { deleteProjectRuns } from '../../pipelines/projects/delete-project-runs.ts';
import { requeueDeletions } from '../../pipelines/projects/requeue-deletions.ts';
import { createProjectResolver } from '../../pipelines/projects/resolve-project.ts';
import { locateRun } from '../../pipelines/runs/locate-run.ts';
import { createAuthenticator } from '../../pipelines/tenants/authenticate.ts';
import { bootstrap } from '../../pipelines/tenants/bootstrap.ts';
import { startRollUp } from '../../pipelines/usage/roll-up.ts';
import { topics } from '../../schemas/topics.ts';
import { operations } from '../main/operations.ts';
import { buildServer } from '../server/build-server.ts';
import type { Services } from '../server/services.ts';
import { listenFault } from './check-port.ts';
import type { Ends } from './ends.ts';
import type { StoreAddresses, Stores } from './open-stores.ts';
import { printFirstKey } from './print-first-key.ts';
import { requireStoreVersions } from './require-store-versions.ts';

export interface AllParts {
  readonly config: Config;
  readonly logger: Logger;
  readonly folder: DataFolder;
  readonly addresses: StoreAddresses;
  readonly stores: Stores;
  readonly ends: Ends;
}

const expireEveryMs = 10 * 60_000;

/** Of the lock that the one process with the in-process log has on its database. */
const logLockKey = 7_215_508_432;

/**
 * Starts log, sink, roll-up, jobs and HTTP in this process; each adds its end to `ends`.
 *
 * @returns the lock on the database; once it is lost, this process must stop.
 * @throws LOG_IN_USE, and what the parts throw.
 */
export async function serveAll({ config, logger, folder, addresses, stores, ends }: AllParts): Promise<SessionLock> {
  const { database, warehouse } = stores;
  const lock = await lockLog(addresses.databaseUrl, logger);
  ends.add('lock', () => lock.release());
  await requireStoreVersions(stores);
  await migrate({ database, warehouse, logger });
  const firstKey = await bootstrap(database, config);

  const jobs = await openJobs({ databaseUrl: addresses.databaseUrl, redisUrl: config.redisUrl, logger });
  ends.add('jobs', () => jobs.close());

  const rollUp = startRollUp({ database, warehouse, intervalMs: config.rollupIntervalMs, logger });
  ends.add('roll-up', () => rollUp.stop());

  const { logPartitions: partitions, maxPendingBytes } = config;
  const log = await openInProcessLog({ database, topics, partitions, maxPendingBytes, logger });
  const sink = new Sink({ log, warehouse, database, config, logger, onHoursNoted: () => rollUp.wake() });
  await sink.start(topics);
  ends.add('sink', () => sink.stop());
  ends.add('event log', () => log.close());

  const authenticator = createAuthenticator({ database, logger });
  ends.add('authenticator', () => authenticator.close());
  const projects = createProjectResolver(database);
  const runPlaces = new RunPlaces((workspaceId, runId) => locateRun(warehouse, workspaceId, runId));
  const services: Services = {
    config,
    database,
    warehouse,
    authenticator,
    projects,
    attachmentSigner: createTokenSigner(config.secretKey ?? keepSecretKey(folder.path), 'attachments'),
    accept: { log, projects, runPlaces, config, count: countRuns },
    healthChecks: [
      { name: 'clickhouse', check: () => warehouse.ping() },
      { name: 'postgres', check: () => database.ping() },
      { name: 'event_log', check: () => log.check() },
      { name: 'sink', check: () => sink.check() },
      { name: 'usage_roll_up', check: () => rollUp.check() },
      { name: 'jobs', check: () => jobs.check() },
    ],
    enqueueProjectDeletion: ({ workspaceId, projectId }) =>
      jobs.enqueue('delete-project-runs', { workspace_id: workspaceId, project_id: projectId }, { jobId: projectId }),
  };
  await startJobs(jobs, { log, config, logger, database, warehouse });
  await requeueDeletions(services);

  const server = await buildServer({ config, services, logger, operations });
  ends.add('HTTP', () => server.drain());
  const url = await listen(server, config);
  folder.writeRunFile({ url, ...addresses });
  printFirstKey(firstKey, url);
  return lock;
}

/** Two sinks would place traces each on its own, and take each other's cuts for those of a dead process. */
async function lockLog(url: string, logger: Logger): Promise<SessionLock> {
  const lock = await takeSessionLock({ url, key: logLockKey, logger });
  if (lock === undefined) throw fault('LOG_IN_USE', { database: databaseOf(url) });
  return lock;
}

function databaseOf(url: string): string {
  const { host, pathname } = new URL(url);
  return `${host}${pathname}`;
}

async function startJobs(
  jobs: Jobs,
  {
    log,
    config,
    logger,
    database,
    warehouse,
  }: Pick<AllParts, 'config' | 'logger'> & Omit<Stores, 'close'> & { log: InProcessLog },
): Promise<void> {
  jobs.work('expire-parked-events', async (_payload, { signal }) => {
    await expireParkedEvents({ log, database, logger }, { hours: config.parkedEventHours, signal });
  });
  jobs.work('delete-project-runs', ({ workspace_id: workspaceId, project_id: projectId }, { signal }) =>
    deleteProjectRuns({ warehouse, database }, { workspaceId, projectId, signal }),
  );
  await jobs.every('expire-parked-events', expireEveryMs, {});
}

/** @throws PORT_IN_USE, HOST_UNUSABLE */
async function listen(server: Awaited<ReturnType<typeof buildServer>>, { host, port }: Config): Promise<string> {
  try {
    await server.listen({ host, port });
  } catch (error) {
    throw listenFault(error, { host, port });
  }
  const address = server.server.address() as AddressInfo;
  const name = address.family === 'IPv6' ? `[${address.address}]` : address.address;
  return `http://${name}:${address.port}`;
}
