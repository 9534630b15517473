/**
 * Runs one role until a signal stops it.
 *
 * Start order, reversed at shutdown: data folder and engines (if any engine is embedded) → stores → listener, wait for
 * servers, parts of the role (`start-role.ts`). On SIGTERM or SIGINT:
 *   1. new requests get 503; in-flight requests finish;
 *   2. the log and the sink finish the events that were accepted;
 *   3. the roll-up finishes its run, and jobs finish;
 *   4. connections close, engines stop, and the lock of the data folder is released.
 *
 * After a signal during startup, the parts that are already up end in the same order, and the process exits with 128 +
 * the signal's number. The process waits for engines that are still starting, so that no child process is left behind.
 * A second signal ends the process immediately.
 */
import { constants } from 'node:os';
import { loadConfig } from '../../infra/config/load.ts';
import type { Config } from '../../infra/config/settings.ts';
import { type DataFolder, openDataFolder } from '../../infra/embedded/data-folder.ts';
import { startEmbedded } from '../../infra/embedded/start.ts';
import { createLogger, type Logger } from '../../infra/telemetry/logger.ts';
import { startTracing } from '../../infra/telemetry/tracing/start-tracing.ts';
import { releaseVersion } from '../server/release.ts';
import { type AgentsPart, checkPort, getAgentServerAddress, getApiAddress, toolServerAddress } from './check-port.ts';
import { stopWithHost } from './follow-host.ts';
import { embedsEngines, openStores, type StoreAddresses } from './open-stores.ts';
import { checkRole, loadParts, type Role, servesAgents, servesTools } from './role.ts';
import { ShutdownSteps } from './shutdown-steps.ts';

/**
 * `runlake all|api|ingest|exports|agents|tools`. Resolves when the role has stopped. @throws the error that prevents the
 * start.
 */
export async function runRole(role: Role, part: AgentsPart = 'both'): Promise<void> {
  const { config } = loadConfig();
  const logger = createLogger(config.logLevel, role);
  checkRole(role, config, part);
  const stopped = waitForStopSignal();
  if (config.agentsRevision !== undefined) stopWithHost();
  let interruptSignal: NodeJS.Signals | undefined;
  const shutdown = new ShutdownSteps();
  try {
    const folder = embedsEngines(config) ? await openFolder(config, shutdown) : undefined;
    const tracing = await startTracing({ config, role, version: releaseVersion, logger });
    shutdown.add('traces', () => tracing.stop());
    if (role === 'all' || role === 'api') await checkPort(getApiAddress(config));
    if (servesAgents(role, config) && part !== 'work') await checkPort(getAgentServerAddress(config));
    if (servesTools(role)) await checkPort(toolServerAddress(config));
    await checkAgentsFile(role, config);
    // These modules are most of the program. They load while the engines start, and only after all earlier checks.
    const [{ addresses, engineExited }, { startRole }, loaded] = await Promise.all([
      startEngines(folder, config, logger, shutdown),
      import('./start-role.ts'),
      loadParts(role, config),
    ]);
    const stores = openStores(addresses, config, logger);
    shutdown.add('stores', () => stores.close());
    const started = startRole({ role, part, loaded, config, logger, folder, addresses, stores, shutdown });
    const served = await Promise.race([started, stopped]);
    if (typeof served === 'string') {
      interruptSignal = served;
      logger.info({ signal: served }, 'stopping during start');
      // In this case, startup fails at the next part that it adds, or because the stores are closed.
      started.catch(() => undefined);
      return;
    }
    const replaced = served.replaced.then(() => {
      process.exitCode = 1;
      logger.error('another process locked the database while the connection was lost, stopping');
      return 'lock lost';
    });
    const signal = await Promise.race([stopped, engineExited, replaced]);
    logger.info({ signal }, 'stopping, finishing accepted work');
  } finally {
    await shutdown.run(logger);
    if (interruptSignal !== undefined) process.exit(128 + constants.signals[interruptSignal]);
  }
  logger.info('stopped');
}

/**
 * Reads the langgraph.json before the engines start. The processes of a deployment read it later, when they can report
 * errors to their host. @throws GRAPHS_FILE_INVALID
 */
async function checkAgentsFile(role: Role, config: Config): Promise<void> {
  const { agentsFile } = config;
  if (agentsFile === undefined || !servesAgents(role, config) || config.agentsRevision !== undefined) return;
  const { readGraphsFile } = await import('../../pipelines/agents/graphs/graphs-file.ts');
  await readGraphsFile(agentsFile);
}

async function openFolder({ dataDir }: Config, shutdown: ShutdownSteps): Promise<DataFolder> {
  const folder = await openDataFolder(dataDir);
  shutdown.add('data folder', () => folder.close());
  return folder;
}

/** Returns the addresses of both stores. A store without a configured address is started in `folder`. */
async function startEngines(folder: DataFolder | undefined, config: Config, logger: Logger, shutdown: ShutdownSteps) {
  const neededEngines = { clickhouse: config.clickhouseUrl === undefined, database: config.databaseUrl === undefined };
  const engines = folder && (await startEmbedded({ folder, needs: neededEngines, logger }));
  if (engines !== undefined) shutdown.add('engines', () => engines.stop());
  const addresses: StoreAddresses = {
    clickhouseUrl: (config.clickhouseUrl ?? engines?.clickhouseUrl) as string,
    databaseUrl: (config.databaseUrl ?? engines?.databaseUrl) as string,
  };
  const engineExit = engines?.exited.then(({ engine, reason, expected }) => {
    if (!expected) {
      process.exitCode = 1;
      logger.error({ engine, reason }, 'embedded engine exited and is not restarted');
    }
    return `${engine} ended`;
  });
  return { addresses, engineExited: engineExit ?? new Promise<string>(() => undefined) };
}

function waitForStopSignal(): Promise<NodeJS.Signals> {
  return new Promise((resolve) => {
    let isStopping = false;
    for (const signal of ['SIGTERM', 'SIGINT'] as const) {
      process.on(signal, () => {
        if (isStopping) process.exit(1);
        isStopping = true;
        resolve(signal);
      });
    }
  });
}
