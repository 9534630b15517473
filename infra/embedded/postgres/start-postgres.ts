import { existsSync } from 'node:fs';
import { join } from 'node:path';
import pg from 'pg';
import { runlakeError } from '../../errors/runlake-error.ts';
import type { Logger } from '../../telemetry/logger.ts';
import { BoundedLog, forkProgram, LastLines } from '../child-program.ts';
import { createFixedPortLauncher } from '../free-port.ts';
import { isSystemError, loadOrCreateSecret, readFileIfExists } from '../private-file.ts';
import {
  type EngineExit,
  type EngineProcess,
  type SupervisionTimes,
  superviseEngine,
  waitUntilReady,
} from '../supervise-engine.ts';
import { findBinaries, type PostgresBinaries } from './binaries.ts';
import { type ClusterLocation, chooseLocation, ensureCluster, user } from './cluster.ts';
import { stopLeftoverServers } from './leftovers.ts';

export interface EmbeddedPostgres {
  /**
   * URL of the server, as `postgres://user:password@127.0.0.1:port/database`. It does not change when the engine
   * restarts.
   */
  readonly url: string;
  /** Resolves when the engine has ended permanently. Never rejects. */
  readonly exited: Promise<EngineExit>;
  stop(): Promise<void>;
}

export interface PostgresOptions {
  /** The data folder. The caller holds its lock. */
  readonly folder: string;
  /** Port of the server. Default: a free port. */
  readonly port?: number;
  readonly logger?: Logger;
  readonly times?: SupervisionTimes;
  /** The Postgres build. Default: the build in the npm package. */
  readonly build?: PostgresBinaries;
  /**
   * Turns `fsync` off, for tests. Commits then survive a crash of the engine, but not a crash of the machine. Default:
   * false.
   */
  readonly disableFsync?: boolean;
  /** Folders that an account other than root can access. Used if Runlake runs as root; see `cluster.ts`. */
  readonly sharedFolders?: readonly string[];
}

const database = 'runlake';
const maxLogBytes = 5 * 1024 * 1024;

/**
 * Starts a Postgres server in a child process, on a free loopback port, with durable data in the data folder and a
 * stored password. Resolves when the server is ready. A server that exits unexpectedly is restarted.
 *
 * @throws ENGINE_PACKAGE_MISSING; ENGINE_START_FAILED with the engine's last error.
 */
export async function startPostgres(options: PostgresOptions): Promise<EmbeddedPostgres> {
  const { folder, logger, disableFsync = false, times = {} } = options;
  const location = chooseLocation(folder, options.build ?? findBinaries(), options.sharedFolders);
  const { dataFolder } = location;
  const password = loadOrCreatePassword(folder, dataFolder);
  await ensureCluster(location, password);
  location.record();

  const log = new BoundedLog(join(folder, 'postgres.log'), maxLogBytes);
  const onLine = (line: string) => log.write(line);
  const server = createFixedPortLauncher(options.port, (port) =>
    launchServer({ location, port, password, disableFsync, times, onLine }),
  );
  const launch = async () => {
    await stopLeftoverServers(dataFolder);
    return server.launch();
  };
  const engine = await superviseEngine('Postgres', launch, logger, times);
  return {
    url: `postgres://${user}:${password}@127.0.0.1:${server.port}/${database}`,
    exited: engine.exited,
    stop: () => engine.stop(),
  };
}

/**
 * Returns the stored password. A new password is stored before the cluster is created, so that a cluster never exists
 * without a stored password.
 */
function loadOrCreatePassword(folder: string, dataFolder: string): string {
  const path = join(folder, 'postgres.password');
  if (!readFileIfExists(path)?.trim() && existsSync(dataFolder)) {
    const reason = `${path} with its password does not exist`;
    throw runlakeError('ENGINE_START_FAILED', { engine: 'Postgres', reason });
  }
  return loadOrCreateSecret(path, 24);
}

interface ServerLaunch {
  readonly location: ClusterLocation;
  readonly port: number;
  readonly password: string;
  readonly disableFsync: boolean;
  readonly times: SupervisionTimes;
  readonly onLine: (line: string) => void;
}

/** Startup timeout, including crash recovery. */
const readyTimeoutMs = 120_000;
/** Matches errors of Postgres, except the refusal of connections while it starts or stops, which is no cause. */
const causePattern = /(?:FATAL|PANIC|ERROR):(?!\s+the database system is )/;
/** SQLSTATE `invalid_password`. */
const invalidPasswordState = '28P01';

/**
 * Server settings for a machine that is shared with other programs, and for a single client: little memory, no
 * replication, durable commits.
 */
const serverSettings = {
  listen_addresses: '127.0.0.1',
  unix_socket_directories: '',
  fsync: 'on',
  synchronous_commit: 'on',
  shared_buffers: '64MB',
  max_connections: '200',
  wal_level: 'minimal',
  max_wal_senders: '0',
  // Otherwise Postgres logs at each stop that the launcher of these workers exited with code 1.
  max_logical_replication_workers: '0',
  max_wal_size: '256MB',
  max_parallel_workers_per_gather: '0',
  // Makes autovacuum vacuum and analyse new tables within the first minute of load.
  autovacuum_naptime: '10s',
  log_min_messages: 'warning',
  log_checkpoints: 'off',
  log_line_prefix: '%m ',
  timezone: 'UTC',
  log_timezone: 'UTC',
} as const;

/**
 * Starts one server process and waits until the server accepts the user and the password. Creates the database if it is
 * missing.
 *
 * @throws ENGINE_START_FAILED after the process has exited.
 */
async function launchServer(launch: ServerLaunch): Promise<EngineProcess> {
  const { binaries, dataFolder, account } = launch.location;
  const child = forkProgram({
    program: './watchdog-child',
    base: import.meta.url,
    cwd: dataFolder,
    args: [
      join(binaries, 'bin', 'postgres'),
      dataFolder,
      String(account?.uid ?? ''),
      String(account?.gid ?? ''),
      '-D',
      dataFolder,
      '-p',
      String(launch.port),
      ...Object.entries({ ...serverSettings, ...(launch.disableFsync && { fsync: 'off' }) }).flatMap(
        ([name, value]) => ['-c', `${name}=${value}`],
      ),
    ],
  });
  const output = new LastLines(child.stderr, launch.onLine);
  return waitUntilReady({
    engine: 'Postgres',
    child,
    probe: () => ensureDatabase(launch),
    isAlive: () => isResponding(launch),
    explain: () => output.last(causePattern),
    requestShutdown: () => child.kill('SIGTERM'),
    readyTimeoutMs,
    stopTimeoutMs: launch.times.stopTimeoutMs ?? 12_000,
  });
}

/** Returns true if the server responds. An error is also a response, for example during recovery. Never rejects. */
async function isResponding(launch: ServerLaunch): Promise<boolean> {
  const timeoutMs = launch.times.probeTimeoutMs ?? 10_000;
  const client = createClient(launch, { database, connectionTimeoutMillis: timeoutMs, query_timeout: timeoutMs });
  try {
    await client.connect();
    await client.query('SELECT 1');
    return true;
  } catch (error) {
    return error instanceof pg.DatabaseError;
  } finally {
    // The call is not awaited, because a suspended server does not close the connection.
    client.end().catch(() => {});
  }
}

/**
 * Returns `ready`, or the reason why the server is not ready yet.
 *
 * @throws ENGINE_START_FAILED if the cluster has another password.
 */
async function ensureDatabase(launch: ServerLaunch): Promise<string> {
  const client = createClient(launch, { database: 'postgres', connectionTimeoutMillis: 5_000 });
  try {
    await client.connect();
    const found = await client.query('SELECT 1 FROM pg_database WHERE datname = $1', [database]);
    if (found.rowCount === 0) await client.query(`CREATE DATABASE ${client.escapeIdentifier(database)}`);
    return 'ready';
  } catch (error) {
    if (isSystemError(error, invalidPasswordState)) {
      const reason = 'postgres.password does not match the password of its data';
      throw runlakeError('ENGINE_START_FAILED', { engine: 'Postgres', reason }, { cause: error });
    }
    return error instanceof Error ? error.message : String(error);
  } finally {
    await client.end().catch(() => {});
  }
}

function createClient({ port, password }: ServerLaunch, options: pg.ClientConfig): pg.Client {
  const client = new pg.Client({ host: '127.0.0.1', port, user, password, ...options });
  // If the connection breaks, the running query fails and reports the error. This listener need not do anything.
  client.on('error', () => {});
  return client;
}
