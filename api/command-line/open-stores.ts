import { OpenedOnce } from '../../infra/cache/opened-once.ts';
import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { openClickHouse } from '../../infra/clickhouse/client.ts';
import { loadConfig } from '../../infra/config/load.ts';
import type { Config } from '../../infra/config/settings.ts';
import { readRunFile } from '../../infra/embedded/data-folder.ts';
import type { EventLog } from '../../infra/event-log/event-log.ts';
import type { Jobs } from '../../infra/jobs/jobs.ts';
import { findCommandActor, runAsActor } from '../../infra/postgres/actor.ts';
import { type Database, openDatabase } from '../../infra/postgres/pool.ts';
import { createLogger, type Logger } from '../../infra/telemetry/logger.ts';
import { settlesBeforeTimeout } from '../../infra/timeouts/with-timeout.ts';
import { readTrustedAuthorities } from '../../infra/tls/trusted-authorities.ts';
import { ShutdownSteps } from './shutdown-steps.ts';

export interface Stores {
  readonly clickhouse: ClickHouse;
  readonly database: Database;
  close(): Promise<void>;
}

/** What the parts of a role share. */
export interface RoleParts {
  readonly config: Config;
  readonly logger: Logger;
  readonly stores: Stores;
  readonly log: EventLog;
}

const closeTimeoutMs = 1_000;

export interface StoreAddresses {
  readonly clickhouseUrl: string;
  readonly databaseUrl: string;
}

/** Opens both stores. @throws TLS_FILE_UNUSABLE */
export function openStores(addresses: StoreAddresses, config: Config, logger: Logger): Stores {
  const shared = { authorities: readTrustedAuthorities(config), logger, timeoutMs: config.queryTimeoutMs };
  const clickhouse = openClickHouse({
    ...{ ...shared, url: addresses.clickhouseUrl, cluster: config.clickhouseCluster },
  });
  const database = openDatabase({ ...shared, url: addresses.databaseUrl });
  return {
    clickhouse,
    database,
    close: async () => {
      // At this point nothing uses the stores, so the only open connections can be those to an unresponsive server.
      await settlesBeforeTimeout(Promise.all([clickhouse.close(), database.close()]), closeTimeoutMs);
    },
  };
}

/** Returns true if this process embeds an engine and therefore needs the data folder. */
export function embedsEngines({ clickhouseUrl, databaseUrl }: Config): boolean {
  return clickhouseUrl === undefined || databaseUrl === undefined;
}

/**
 * Finds the stores for a command that runs alongside an instance. Returns the configured addresses, or the addresses in
 * the run file of the instance that uses the data folder.
 *
 * @throws NOT_RUNNING if there is neither a configured address nor a run file.
 */
async function findStores(config: Config): Promise<StoreAddresses> {
  if (config.clickhouseUrl !== undefined && config.databaseUrl !== undefined) {
    return { clickhouseUrl: config.clickhouseUrl, databaseUrl: config.databaseUrl };
  }
  const running = await readRunFile(config.dataDir);
  return {
    clickhouseUrl: config.clickhouseUrl ?? running.clickhouseUrl,
    databaseUrl: config.databaseUrl ?? running.databaseUrl,
  };
}

/** Dependencies of a command that runs alongside an instance. */
export interface StoreAccess {
  readonly config: Config;
  readonly logger: Logger;
  readonly stores: Stores;
  /** Opens the job queue when it is first called. */
  readonly openJobs: () => Promise<Jobs>;
  /** Shutdown steps of everything that the command opens in addition to the stores. */
  readonly shutdown: ShutdownSteps;
}

/**
 * Opens the stores for a command, and closes them when `work` has finished.
 *
 * @throws NOT_RUNNING and the errors of `work`.
 */
export async function withStores<Result>(
  command: string,
  work: (access: StoreAccess) => Promise<Result>,
): Promise<Result> {
  const { config } = loadConfig();
  const logger = createLogger('error', command);
  const addresses = await findStores(config);
  const stores = openStores(addresses, config, logger);
  const shutdown = new ShutdownSteps();
  shutdown.add('stores', () => stores.close());
  const jobs = new OpenedOnce(async () => {
    const { openJobs } = await import('../../infra/jobs/open-jobs.ts');
    const opened = await openJobs({ databaseUrl: addresses.databaseUrl, config, logger });
    shutdown.add('jobs', () => opened.close());
    return opened;
  });
  const openJobs = () => jobs.get();
  try {
    return await runAsActor(findCommandActor(), () => work({ config, logger, stores, openJobs, shutdown }));
  } finally {
    await shutdown.run(logger);
  }
}
