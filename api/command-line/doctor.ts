import { loadConfig } from '../../infra/config/load.ts';
import type { Config } from '../../infra/config/settings.ts';
import { type RunningInstance, readRunFile } from '../../infra/embedded/run-file.ts';
import { isRunlakeError } from '../../infra/errors/runlake-error.ts';
import { checkMigrations } from '../../infra/migrations/migrate.ts';
import type { PartHealth } from '../../infra/telemetry/check-health.ts';
import { createLogger } from '../../infra/telemetry/logger.ts';
import { serverChecks } from './ask-servers.ts';
import { type AskedServer, explainPart } from './explain-part.ts';
import { inspectAgentDatabase, inspectAgentPort, inspectGraphs } from './inspect-agents.ts';
import { inspections, lastEngineLines } from './inspect-installation.ts';
import { findStores, openStores, type StoreAddresses, type Stores } from './open-stores.ts';
import { partRemedy } from './part-remedy.ts';
import { embedsEngines } from './role.ts';

const answerWithinMs = 5_000;

/** Stands where an address is not known. */
const neverAsked: StoreAddresses = { clickhouseUrl: 'http://none.invalid', databaseUrl: 'postgres://none.invalid' };

/**
 * `runlake doctor`: one line a part, in words: up, or what is wrong and what to do. Ends with status 1 where anything is wrong.
 */
export async function diagnose(): Promise<void> {
  const { config, unknownVariables } = loadConfig();
  say(true, 'Configuration', 'every setting is valid');
  for (const variable of unknownVariables)
    say(false, variable, 'is no setting of Runlake', 'Check the spelling with `runlake config`.');

  const running = await readRunFile(config.dataDir).catch((error: unknown) => error);
  if (!embedsEngines(config)) await askHere(config);
  else if (isRunning(running)) {
    say(true, 'Process', `runlake runs as process ${running.pid} since ${running.startedAt}`);
    await askReady(running, config);
  } else {
    await lookAtInstallation(config, running);
  }

  // Of embedded engines that do not run there is no address; servers that have one are asked all the same.
  const addresses: Partial<StoreAddresses> = await findStores(config).catch(() => configuredStores(config));
  const patient = { ...config, queryTimeoutMs: answerWithinMs };
  const stores = openStores({ ...neverAsked, ...addresses }, patient, createLogger('silent', 'doctor'));
  try {
    const fit = await askServers(stores, config, addresses);
    const { agentsFile } = config;
    if (agentsFile !== undefined) {
      const logger = createLogger('silent', 'doctor');
      await inspectGraphs(agentsFile, config, logger, say);
      await inspectAgentPort(config, say);
      const { databaseUrl } = addresses;
      if (fit && databaseUrl !== undefined) {
        const asked = { database: stores.database, databaseUrl, config: { ...config, agentsFile }, logger };
        await report('Agent database', () => inspectAgentDatabase(asked, say).then(() => undefined));
      }
    }
  } finally {
    await stores.close();
  }
}

/** Roles on addresses leave no trace in a folder, and may run elsewhere: what answers at our own address is asked. */
async function askHere(config: Config): Promise<void> {
  const { host, port, metricsHost, metricsPort } = config;
  const places = [
    ['API', host, port],
    ['Ingest', metricsHost, metricsPort],
  ] as const;
  for (const [role, at, number] of places) {
    const url = `http://${at.includes(':') ? `[${at}]` : at}:${number}`;
    const answers = await fetch(`${url}/ok`, { signal: AbortSignal.timeout(answerWithinMs) }).then(
      ({ ok }) => ok,
      () => false,
    );
    if (answers) await askReady({ url, pid: undefined }, config);
    else
      console.log(`note   ${role}: no runlake answers at ${url}; one that runs elsewhere is asked by GET /ready there`);
  }
}

/** Nothing runs: says whether it could, what the engines said last, and how to start. */
async function lookAtInstallation(config: Config, reason: unknown): Promise<void> {
  for (const { part, check } of inspections(config)) await report(part, check);
  for (const { path, lines } of lastEngineLines(config)) {
    console.log(`note   Last lines of ${path}:`);
    for (const line of lines) console.log(`       | ${line}`);
  }
  const remedy = 'Start it with `runlake all`; for another data folder set RUNLAKE_DATA_DIR, here too.';
  say(false, 'Process', wordsOf(reason), remedy);
}

async function askReady(
  { url, pid }: { readonly url: string; readonly pid: number | undefined },
  config: Config,
): Promise<void> {
  const remedy = `See the log of process ${pid ?? 'runlake'}; where it goes on, stop that process and start runlake again.`;
  try {
    const answer = await fetch(`${url}/ready`, { signal: AbortSignal.timeout(answerWithinMs) });
    const { parts = {} } = (await answer.json()) as { parts?: Record<string, PartHealth> };
    if (answer.ok) return say(true, 'HTTP', `answers at ${url} and is ready`);
    const down = Object.entries(parts).filter(([, part]) => !part.up);
    const names = down.map(([name]) => name).join(', ') || 'no part says why';
    say(false, 'HTTP', `answers at ${url} but is not ready: ${names}`, down.length === 0 ? remedy : '');
    for (const [name, { reason = 'is down' }] of down)
      say(false, `Part ${name}`, reason, partRemedy(name, config, pid));
  } catch (error) {
    say(false, 'HTTP', `does not answer at ${url}: ${wordsOf(error)}`, remedy);
  }
}

function configuredStores({ clickhouseUrl, databaseUrl }: Config): Partial<StoreAddresses> {
  return { ...(clickhouseUrl !== undefined && { clickhouseUrl }), ...(databaseUrl !== undefined && { databaseUrl }) };
}

/** @returns whether both stores are up and of this release. */
async function askServers(stores: Stores, config: Config, addresses: Partial<StoreAddresses>): Promise<boolean> {
  const up: boolean[] = [];
  for (const server of serverChecks(config, addresses, stores)) {
    up.push(await report(server.name, server.check, { server, config }));
  }
  const bothKnown = addresses.clickhouseUrl !== undefined && addresses.databaseUrl !== undefined;
  if (!bothKnown || up.slice(0, 2).includes(false)) return false;
  let current = false;
  await report('Schema', async () => {
    const { pending } = await checkMigrations(stores);
    current = pending.length === 0;
    if (current) return 'is that of this release';
    say(false, 'Schema', `lacks ${pending.join(', ')}`, 'run `runlake migrate`');
    return undefined;
  });
  return current;
}

/** Says how a check ended; one that resolves with nothing has spoken itself. */
async function report(
  part: string,
  check: () => Promise<string | undefined>,
  asked?: { readonly server: AskedServer; readonly config: Config },
): Promise<boolean> {
  try {
    const words = await check();
    if (words !== undefined) say(true, part, words);
    return true;
  } catch (error) {
    const why = asked && explainPart(error, asked.server);
    if (why !== undefined && !isEmbedded(part, asked?.config)) say(false, part, why.words, why.remedy);
    else {
      const own = isRunlakeError(error) ? error.remedy : undefined;
      const passes = isRunlakeError(error) && error.class === 'transient';
      const remedy = asked && partRemedy(part.toLowerCase(), asked.config, undefined);
      say(false, part, wordsOf(error), (passes ? remedy : own) ?? own ?? remedy);
    }
    return false;
  }
}

/** An engine of our own is not reached by an address that somebody could correct. */
function isEmbedded(part: string, config: Config | undefined): boolean {
  return (
    (part === 'ClickHouse' && config?.clickhouseUrl === undefined) ||
    (part === 'Postgres' && config?.databaseUrl === undefined)
  );
}

function wordsOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

function say(up: boolean, part: string, words: string, remedy = ''): void {
  console.log(`${up ? 'ok   ' : 'FAULT'}  ${part}: ${words}${remedy === '' ? '' : `\n       → ${remedy}`}`);
  if (!up) process.exitCode = 1;
}

function isRunning(value: unknown): value is RunningInstance {
  return typeof value === 'object' && value !== null && 'pid' in value;
}
