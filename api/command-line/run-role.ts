/**
 * Runs one role until it is told to stop.
 *
 * Order, and the reverse of it at the end: data folder and engines, where any is embedded → stores → listener, servers that are
 * away, the parts of the role (`start-role.ts`).
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
import { createLogger, type Logger } from '../../infra/telemetry/logger.ts';
import { startTracing } from '../../infra/telemetry/tracing/start-tracing.ts';
import { releaseVersion } from '../server/release.ts';
import { agentServerAddress, apiAddress, checkPort } from './check-port.ts';
import { Ends } from './ends.ts';
import { openStores, type StoreAddresses } from './open-stores.ts';
import { type AgentsPart, checkRole, embedsEngines, type Role, servesAgents } from './role.ts';

/** `runlake all|api|ingest|exports|agents`. Resolves when the role was stopped. @throws what keeps it from starting. */
export async function runRole(role: Role, part: AgentsPart = 'both'): Promise<void> {
  const { config, unknownVariables } = loadConfig();
  const logger = createLogger(config.logLevel, role);
  for (const variable of unknownVariables) logger.warn({ variable }, 'no setting of Runlake: misspelt?');
  checkRole(role, config);
  const stopped = stopSignal();
  let interruptedBy: NodeJS.Signals | undefined;
  const ends = new Ends();
  try {
    const folder = embedsEngines(config) ? await takeFolder(config, ends) : undefined;
    const tracing = await startTracing({ config, role, version: releaseVersion, logger });
    ends.add('traces', () => tracing.stop());
    if (role === 'all' || role === 'api') await checkPort(apiAddress(config));
    if (servesAgents(role, config) && part !== 'work') await checkPort(agentServerAddress(config));
    // What serves is most of the program: it is loaded beside the start of the engines, and only by who gets this far.
    const [{ addresses, enginesGone }, { startRole }, loaded] = await Promise.all([
      startEngines(folder, config, logger, ends),
      import('./start-role.ts'),
      import('./load-parts.ts').then(({ loadParts }) => loadParts(role, config)),
    ]);
    const stores = openStores(addresses, config, logger);
    ends.add('stores', () => stores.close());
    const started = startRole({ role, part, loaded, config, logger, folder, addresses, stores, ends });
    const served = await Promise.race([started, stopped]);
    if (typeof served === 'string') {
      interruptedBy = served;
      logger.info({ signal: served }, 'stopping before everything was up');
      // It fails at the next part that it brings up, or on stores that are closed.
      started.catch(() => undefined);
      return;
    }
    const replaced = served.replaced.then(() => {
      process.exitCode = 1;
      logger.error('another runlake has taken the database while the connection to it was lost: this one stops');
      return 'lock lost';
    });
    const signal = await Promise.race([stopped, enginesGone, replaced]);
    logger.info({ signal }, 'stopping: finishing what was accepted');
  } finally {
    await ends.run(logger);
    if (interruptedBy !== undefined) process.exit(128 + constants.signals[interruptedBy]);
  }
  logger.info('stopped');
}

async function takeFolder({ dataDir }: Config, ends: Ends): Promise<DataFolder> {
  const folder = await openDataFolder(dataDir);
  ends.add('data folder', () => folder.close());
  return folder;
}

/** The addresses of both stores; those that have none are started in `folder`. */
async function startEngines(folder: DataFolder | undefined, config: Config, logger: Logger, ends: Ends) {
  const needs = { clickhouse: config.clickhouseUrl === undefined, database: config.databaseUrl === undefined };
  const engines = folder && (await startEmbedded({ folder, needs, logger }));
  if (engines !== undefined) ends.add('engines', () => engines.stop());
  const addresses: StoreAddresses = {
    clickhouseUrl: (config.clickhouseUrl ?? engines?.clickhouseUrl) as string,
    databaseUrl: (config.databaseUrl ?? engines?.databaseUrl) as string,
  };
  const gone = engines?.exited.then(({ engine, reason, expected }) => {
    if (!expected) {
      process.exitCode = 1;
      logger.error({ engine, reason }, 'an embedded engine is gone for good');
    }
    return `${engine} ended`;
  });
  return { addresses, enginesGone: gone ?? new Promise<string>(() => undefined) };
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
