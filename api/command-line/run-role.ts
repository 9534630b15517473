/**
 * Runs one role until it is told to stop.
 *
 * Order, and the reverse of it at the end: data folder → engines → stores → migrations → log, sink and roll-up → HTTP.
 * On SIGTERM or SIGINT:
 *   1. new requests get 503; those under way are finished;
 *   2. the log finishes what it accepted, and the sink with it;
 *   3. the roll-up ends its pass, jobs end theirs;
 *   4. connections close, engines stop, the data folder is given back.
 * A signal during the start ends the parts that are up, in the same order, and leaves with 128 + the signal's number; engines
 * that are coming up are waited for, so that none is left behind. A second signal ends the process at once.
 */
import { constants } from 'node:os';
import { loadConfig } from '../../infra/config/load.ts';
import type { Config } from '../../infra/config/settings.ts';
import { type DataFolder, openDataFolder } from '../../infra/embedded/data-folder.ts';
import { startEmbedded } from '../../infra/embedded/start.ts';
import { fault } from '../../infra/errors/runlake-error.ts';
import { createLogger, type Logger } from '../../infra/telemetry/logger.ts';
import { checkPort } from './check-port.ts';
import { Ends } from './ends.ts';
import { openStores, type StoreAddresses } from './open-stores.ts';
import { serveAll } from './serve-all.ts';

export type Role = 'all' | 'api' | 'ingest';

/** `runlake all|api|ingest`. Resolves when the role was stopped. @throws what keeps it from starting. */
export async function runRole(role: Role): Promise<void> {
  const { config, unknownVariables } = loadConfig();
  const logger = createLogger(config.logLevel, role);
  for (const variable of unknownVariables) logger.warn({ variable }, 'no setting of Runlake: misspelt?');
  if (role !== 'all') throw missingAddresses(role, config);
  if (config.kafkaBrokers !== undefined) throw fault('KAFKA_NOT_AVAILABLE', { role });
  requireSecretKey(config);
  const stopped = stopSignal();
  let interruptedBy: NodeJS.Signals | undefined;
  const ends = new Ends();
  try {
    const folder = await openDataFolder(config.dataDir);
    ends.add('data folder', () => folder.close());
    await checkPort(config);
    const { addresses, enginesGone } = await startEngines(folder, config, logger, ends);
    const stores = openStores(addresses, config, logger);
    ends.add('stores', () => stores.close());
    const started = serveAll({ config, logger, folder, addresses, stores, ends });
    const lock = await Promise.race([started, stopped]);
    if (typeof lock === 'string') {
      interruptedBy = lock;
      logger.info({ signal: lock }, 'stopping before everything was up');
      // It fails at the next part that it brings up, or on stores that are closed.
      started.catch(() => undefined);
      return;
    }
    const lockLost = lock.lost.then(() => {
      process.exitCode = 1;
      logger.error('another runlake has taken the database while the connection to it was lost: this one stops');
      return 'lock lost';
    });
    const signal = await Promise.race([stopped, enginesGone, lockLost]);
    logger.info({ signal }, 'stopping: finishing what was accepted');
  } finally {
    await ends.run(logger);
    if (interruptedBy !== undefined) process.exit(128 + constants.signals[interruptedBy]);
  }
  logger.info('stopped');
}

async function startEngines(folder: DataFolder, config: Config, logger: Logger, ends: Ends) {
  const needs = { clickhouse: config.clickhouseUrl === undefined, database: config.databaseUrl === undefined };
  const engines = await startEmbedded({ folder, needs, logger });
  ends.add('engines', () => engines.stop());
  const addresses: StoreAddresses = {
    clickhouseUrl: (config.clickhouseUrl ?? engines.clickhouseUrl) as string,
    databaseUrl: (config.databaseUrl ?? engines.databaseUrl) as string,
  };
  const enginesGone = engines.exited.then(({ engine, reason, expected }) => {
    if (!expected) {
      process.exitCode = 1;
      logger.error({ engine, reason }, 'an embedded engine is gone for good');
    }
    return `${engine} ended`;
  });
  return { addresses, enginesGone };
}

/** The fault of a role that is to meet others in servers of its own, but was not told where they are. */
function missingAddresses(role: Role, config: Config): Error {
  const needed = {
    RUNLAKE_KAFKA_BROKERS: config.kafkaBrokers,
    RUNLAKE_SCHEMA_REGISTRY_URL: config.schemaRegistryUrl,
    RUNLAKE_CLICKHOUSE_URL: config.clickhouseUrl,
    RUNLAKE_DATABASE_URL: config.databaseUrl,
  };
  const missing = Object.entries(needed).filter(([, value]) => value === undefined);
  if (missing.length === 0) return fault('KAFKA_NOT_AVAILABLE', { role });
  return fault('ADDRESS_REQUIRED', { role, variables: missing.map(([variable]) => variable).join(', ') });
}

/** Without embedded engines nothing says that this data folder outlives the process: a key kept there could be lost. */
function requireSecretKey({ clickhouseUrl, databaseUrl, secretKey }: Config): void {
  if (clickhouseUrl === undefined || databaseUrl === undefined || secretKey !== undefined) return;
  const faults = '  - RUNLAKE_SECRET_KEY is required where both stores have addresses: no engine is embedded.';
  throw fault('INVALID_CONFIG', { count: 1, faults });
}

function stopSignal(): Promise<NodeJS.Signals> {
  return new Promise((resolve) => {
    let asked = false;
    for (const signal of ['SIGTERM', 'SIGINT'] as const) {
      process.on(signal, () => {
        if (asked) process.exit(1);
        asked = true;
        resolve(signal);
      });
    }
  });
}
