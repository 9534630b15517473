import { resolve } from 'node:path';
import { type LoadedConfig, loadConfig } from '../../infra/config/load.ts';
import { adoptSettings } from '../../infra/config/print.ts';
import type { Config } from '../../infra/config/settings.ts';
import { findHolder, type RunningInstance, readRunFile } from '../../infra/embedded/data-folder.ts';
import { describeOutsideFolder } from '../../infra/embedded/postgres/cluster.ts';
import { isRunlakeError, isTransient, type RunlakeError } from '../../infra/errors/runlake-error.ts';
import { formatHost } from '../../infra/network/format-host.ts';
import { createLogger } from '../../infra/telemetry/logger.ts';
import type { ComponentHealth } from '../../infra/telemetry/telemetry-server.ts';
import { checkPort, getApiAddress, mainApiUrl } from './check-port.ts';
import {
  createContentChecks,
  createServerChecks,
  describeDeadLetters,
  listInspections,
  readLastEngineLines,
} from './doctor-checks.ts';
import { type CheckedServer, explainPart, findPartRemedy } from './explain-part.ts';
import { formatError, inspectAgentDatabase, inspectGraphs } from './inspect-agents.ts';
import { inspectAgentPort, inspectToolPort } from './inspect-port.ts';
import { embedsEngines, openStores, type StoreAddresses, type Stores } from './open-stores.ts';
import { findSecretKey } from './role.ts';

const timeoutMs = 5_000;

/** Placeholders for unknown addresses. */
const placeholderAddresses: StoreAddresses = {
  clickhouseUrl: 'http://none.invalid',
  databaseUrl: 'postgres://none.invalid',
};

/**
 * Runs `runlake doctor`. Prints one line per part: either that the part is up, or the problem and its remedy. The exit
 * code is 1 if there is any problem. While an instance uses the data folder, the report describes that instance, with its
 * settings; otherwise it describes what a start by this command's user, with its settings, would do.
 */
export async function diagnose(): Promise<void> {
  const own = loadConfig();
  printFinding(true, 'Configuration', 'every setting is valid');

  const running = await readRunFile(own.config.dataDir).catch((error: unknown) => error);
  const instance = embedsEngines(own.config) && isRunning(running) ? running : undefined;
  // The content of embedded stores is checked only while they run; the key in a folder of another user is unreadable.
  const { config, secretKey } = instance
    ? adoptInstance(instance, own)
    : { config: own.config, secretKey: own.config.secretKey };
  if (instance !== undefined) await checkReadiness(instance, config);
  else if (!embedsEngines(config)) await checkLocalRoles(config);
  else if (isRunlakeError(running) && running.code === 'INSTANCE_NOT_READY') await inspectStart(config, running);
  else await inspectStoppedInstallation(config, running);
  const outside = config.databaseUrl === undefined ? describeOutsideFolder(resolve(config.dataDir)) : undefined;
  if (outside !== undefined) console.log(`note   Data folder: ${outside}`);

  // Embedded engines that are not running have no address. Servers with a configured address are always checked.
  const addresses: Partial<StoreAddresses> = { ...instance, ...listConfiguredStores(config) };
  const configWithTimeout = { ...config, queryTimeoutMs: timeoutMs };
  const stores = openStores(
    { ...placeholderAddresses, ...addresses },
    configWithTimeout,
    createLogger('silent', 'doctor'),
  );
  try {
    const fit = await checkServers(stores, { config, addresses, secretKey });
    await inspectToolPort(config, printFinding);
    const { agentsFile } = config;
    if (agentsFile !== undefined) {
      const logger = createLogger('silent', 'doctor');
      await inspectGraphs(agentsFile, { config, logger, instance }, printFinding);
      await inspectAgentPort(config, printFinding);
      const { databaseUrl } = addresses;
      if (fit && databaseUrl !== undefined) {
        const checkDeps = { database: stores.database, databaseUrl, config: { ...config, agentsFile }, logger };
        await reportCheck('Agent database', () => inspectAgentDatabase(checkDeps, printFinding).then(() => undefined));
      }
    }
  } finally {
    await stores.close();
  }
}

/** What is checked, and the key of its stored secrets. Without a key, they are not checked. */
interface Checked {
  readonly config: Config;
  readonly secretKey: string | undefined;
}

const withSecretKey = (config: Config): Checked => ({ config, secretKey: findSecretKey(config) });

/** Says that the report describes an instance, and returns its configuration. */
function adoptInstance(instance: RunningInstance, own: LoadedConfig): Checked {
  const { pid, startedAt, uid } = instance;
  const user = uid === undefined ? '' : `, as user ${uid}`;
  printFinding(true, 'Process', `runlake runs as process ${pid} since ${startedAt}${user}; this report describes it`);
  const { config, different, unknown } = adoptSettings(own, instance);
  if (different.length > 0)
    console.log(`note   Settings: this command uses its own ${different.join(', ')}; the process has other values`);
  if (unknown.length > 0)
    console.log(`note   Settings: secrets of the process are not set here, and not checked: ${unknown.join(', ')}`);
  // Without its password, a check of Kafka would fail.
  const checked = unknown.includes('RUNLAKE_KAFKA_PASSWORD') ? { ...config, kafkaBrokers: undefined } : config;
  return unknown.includes('RUNLAKE_SECRET_KEY') ? { config: checked, secretKey: undefined } : withSecretKey(checked);
}

/**
 * Checks which processes listen on the configured addresses. Roles without embedded engines write no run file and may
 * run on other hosts.
 */
async function checkLocalRoles(config: Config): Promise<void> {
  const { host, port, metricsHost, metricsPort } = config;
  const endpoints = [
    ['API', host, port],
    ['Ingest', metricsHost, metricsPort],
  ] as const;
  for (const [role, at, number] of endpoints) {
    const url = `http://${formatHost(at, number)}`;
    const isResponding = await fetch(`${url}/ok`, { signal: AbortSignal.timeout(timeoutMs) }).then(
      ({ ok }) => ok,
      () => false,
    );
    if (isResponding) await checkReadiness({ url, pid: undefined }, config);
    else console.log(`note   ${role}: no Runlake process at ${url}; on another host, check it with GET /ready`);
  }
}

/**
 * Reports on an installation that is not running: whether it could start, the last log lines of its engines, and how to
 * start it.
 */
async function inspectStoppedInstallation(config: Config, reason: unknown): Promise<void> {
  if (isRunlakeError(reason) && reason.code === 'NOT_RUNNING')
    console.log(
      'note   No process runs: this report describes a start as this user, with the settings of this command',
    );
  for (const { part, check } of listInspections(config)) await reportCheck(part, check);
  const { host, port } = config;
  await reportCheck('API port', async () => {
    await checkPort(getApiAddress(config));
    return port === 0 ? 'a free port is chosen at the start' : `${host}:${port} is free`;
  });
  for (const { path, lines } of readLastEngineLines(config)) {
    console.log(`note   Last lines of ${path}:`);
    for (const line of lines) console.log(`       | ${line}`);
  }
  const isUnreadable = isRunlakeError(reason) && reason.code === 'DATA_FOLDER_UNUSABLE';
  const remedy = isUnreadable
    ? reason.remedy
    : 'Start it with `runlake all`. If it uses another data folder, set RUNLAKE_DATA_DIR for this command, too.';
  printFinding(false, 'Process', formatError(reason), remedy);
}

/** Reports on a process that has not finished its start, perhaps because it waits for a server. */
async function inspectStart(config: Config, reason: RunlakeError): Promise<void> {
  printFinding(false, 'Process', reason.message, reason.remedy);
  // The address is that of the settings of this command, because the process has not written its own yet.
  const url = mainApiUrl({ ...config, publicUrl: undefined }, config.port);
  if (config.port !== 0) await checkReadiness({ url, pid: findHolder(config.dataDir) }, config);
}

async function checkReadiness(
  { url, pid }: { readonly url: string; readonly pid: number | undefined },
  config: Config,
): Promise<void> {
  const remedy = `See the log of process ${pid ?? 'runlake'}. If the problem persists, restart that process.`;
  try {
    const response = await fetch(`${url}/ready`, { signal: AbortSignal.timeout(timeoutMs) });
    const { parts = {} } = (await response.json()) as { parts?: Record<string, ComponentHealth> };
    if (response.ok) return printFinding(true, 'HTTP', `answers at ${url} and is ready`);
    const downParts = Object.entries(parts).filter(([, part]) => !part.up);
    const names = downParts.map(([name]) => name).join(', ') || 'no part reports a reason';
    printFinding(false, 'HTTP', `answers at ${url} but is not ready: ${names}`, downParts.length === 0 ? remedy : '');
    for (const [name, { reason = 'is down' }] of downParts)
      printFinding(false, `Part ${name}`, reason, findPartRemedy(name, config, pid));
  } catch (error) {
    printFinding(false, 'HTTP', `does not answer at ${url}: ${formatError(error)}`, remedy);
  }
}

function listConfiguredStores({ clickhouseUrl, databaseUrl }: Config): Partial<StoreAddresses> {
  return { ...(clickhouseUrl !== undefined && { clickhouseUrl }), ...(databaseUrl !== undefined && { databaseUrl }) };
}

/** Checks the servers. @returns true if both stores are up and have the schema of this release. */
async function checkServers(
  stores: Stores,
  { config, addresses, secretKey }: Checked & { readonly addresses: Partial<StoreAddresses> },
): Promise<boolean> {
  let areStoresUp = true;
  for (const server of createServerChecks(config, addresses, stores)) {
    const isUp = await reportCheck(server.name, server.check, { server, config });
    if (server.name === 'ClickHouse' || server.name === 'Postgres') areStoresUp &&= isUp;
  }
  const areBothKnown = addresses.clickhouseUrl !== undefined && addresses.databaseUrl !== undefined;
  if (!areBothKnown || !areStoresUp) return false;
  for (const { name, check } of createContentChecks({ config, stores, secretKey })) {
    const isPassed = await reportCheck(name, check);
    if (name === 'Schema' && !isPassed) return false;
  }
  await reportCheck('Dead-letter queue', () => reportDeadLetters(config, stores));
  return true;
}

/** Events that cannot be stored are no fault of a part, but they were accepted, so the operator has to know. */
async function reportDeadLetters(config: Config, stores: Stores): Promise<undefined> {
  const records = await describeDeadLetters(config, stores);
  if (records !== undefined)
    console.log(`note   Dead-letter queue: events that could not be stored: ${records}; see \`runlake dlq list\``);
}

/**
 * Prints the result of a check, and returns true if the check succeeded. A check that resolves with undefined has
 * already printed its result.
 */
async function reportCheck(
  part: string,
  check: () => Promise<string | undefined>,
  context?: { readonly server: CheckedServer; readonly config: Config },
): Promise<boolean> {
  try {
    const words = await check();
    if (words !== undefined) printFinding(true, part, words);
    return true;
  } catch (error) {
    const why = context && explainPart(error, context.server);
    if (why !== undefined && !isEmbedded(part, context?.config)) printFinding(false, part, why.words, why.remedy);
    else {
      const own = isRunlakeError(error) ? error.remedy : undefined;
      const remedy = context && findPartRemedy(part.toLowerCase(), context.config, undefined);
      printFinding(false, part, formatError(error), (isTransient(error) ? remedy : own) ?? own ?? remedy);
    }
    return false;
  }
}

/**
 * Returns true if a part is an embedded engine. Embedded engines have no configurable address that the operator could
 * correct.
 */
function isEmbedded(part: string, config: Config | undefined): boolean {
  return (
    (part === 'ClickHouse' && config?.clickhouseUrl === undefined) ||
    (part === 'Postgres' && config?.databaseUrl === undefined)
  );
}

function printFinding(up: boolean, part: string, words: string, remedy = ''): void {
  console.log(`${up ? 'ok   ' : 'error'}  ${part}: ${words}${remedy === '' ? '' : `\n       → ${remedy}`}`);
  if (!up) process.exitCode = 1;
}

function isRunning(value: unknown): value is RunningInstance {
  return typeof value === 'object' && value !== null && 'pid' in value;
}
