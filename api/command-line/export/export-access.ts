import { loadConfig } from '../../../infra/config/load.ts';
import type { Config } from '../../../infra/config/settings.ts';
import type { Database } from '../../../infra/postgres/pool.ts';
import { createLogger } from '../../../infra/telemetry/logger.ts';
import { trustedAuthorities } from '../../../infra/tls/trusted-authorities.ts';
import type { ExportDeps } from '../../../pipelines/exports/export-deps.ts';
import type { Caller } from '../../../pipelines/tenants/caller.ts';
import { operatorOf } from '../../../pipelines/tenants/operator.ts';
import { Ends } from '../ends.ts';
import { findStores, openStores } from '../open-stores.ts';

/** What the bulk export commands use, with the permissions of the operator. */
export interface ExportAccess {
  readonly config: Config;
  readonly database: Database;
  readonly operator: Caller;
  /** Creates and cancels exports. The job queue and Kafka (if configured) are connected at their first use. */
  readonly deps: ExportDeps;
}

/**
 * Opens the dependencies of a bulk export command and closes them when `work` has finished.
 * @throws NOT_RUNNING and the errors of the dependencies.
 */
export async function withExports<Result>(work: (access: ExportAccess) => Promise<Result>): Promise<Result> {
  const { config } = loadConfig();
  const logger = createLogger('error', 'export');
  const addresses = await findStores(config);
  const stores = openStores(addresses, config, logger);
  const { database } = stores;
  const ends = new Ends();
  ends.add('stores', () => stores.close());

  const jobs = once(async () => {
    const { openJobs } = await import('../../../infra/jobs/open-jobs.ts');
    const { redisUrl } = config;
    const authorities = trustedAuthorities(config);
    const opened = await openJobs({ databaseUrl: addresses.databaseUrl, redisUrl, authorities, logger });
    ends.add('jobs', () => opened.close());
    return opened;
  });
  const kafka = once(async () => {
    const { openEventLog } = await import('../open-event-log.ts');
    return (await openEventLog({ config, logger, stores }, ends)).log;
  });
  // The in-process log stores events before it acknowledges them, so there is no position to wait for; it also belongs
  // to the running process.
  const log: ExportDeps['log'] =
    config.kafkaBrokers === undefined
      ? { position: async () => ({}), stored: async () => true }
      : {
          position: async (topic) => (await kafka()).position(topic),
          stored: async (topic, position) => (await kafka()).stored(topic, position),
        };
  try {
    const operator = await operatorOf(database);
    const deps: ExportDeps = {
      database,
      log,
      jobs: { enqueue: async (...job) => (await jobs()).enqueue(...job) },
      limits: config,
      logger,
      now: () => new Date(),
    };
    return await work({ config, database, operator, deps });
  } finally {
    await ends.run(logger);
  }
}

function once<Opened>(open: () => Promise<Opened>): () => Promise<Opened> {
  let opened: Promise<Opened> | undefined;
  return () => {
    opened ??= open();
    return opened;
  };
}
