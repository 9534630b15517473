import { join } from 'node:path';
import pg from 'pg';
import { runlakeError } from '../../errors/runlake-error.ts';
import { forkProgram } from '../child-program.ts';
import { untilReady } from '../engine-child.ts';
import { LastLines } from '../last-lines.ts';
import { isSystemError } from '../private-file.ts';
import type { EngineProcess } from '../supervise-engine.ts';
import type { Account } from './account.ts';
import { user } from './cluster.ts';

export interface ServerLaunch {
  readonly binaries: string;
  readonly dataFolder: string;
  readonly account: Account | undefined;
  readonly port: number;
  readonly password: string;
  readonly database: string;
  readonly isThrowAway: boolean;
  readonly onLine: (line: string) => void;
}

/** Includes the time for crash recovery. */
const readyTimeoutMs = 120_000;
const stopTimeoutMs = 12_000;
/** SQLSTATE invalid_password. */
const wrongPassword = '28P01';

/** For a machine that is shared with other programs, and one client: little memory, no replication, durable commits. */
const settings = {
  listen_addresses: '127.0.0.1',
  unix_socket_directories: '',
  fsync: 'on',
  synchronous_commit: 'on',
  shared_buffers: '64MB',
  max_connections: '200',
  wal_level: 'minimal',
  max_wal_senders: '0',
  max_wal_size: '256MB',
  max_parallel_workers_per_gather: '0',
  // Vacuums and analyses new tables within the first minute of load.
  autovacuum_naptime: '10s',
  log_min_messages: 'warning',
  log_checkpoints: 'off',
  log_line_prefix: '%m ',
  timezone: 'UTC',
  log_timezone: 'UTC',
} as const;

/**
 * Starts one server process and waits until it accepts the user and password and has the database.
 *
 * @throws ENGINE_START_FAILED; the process has exited then.
 */
export async function launchServer(launch: ServerLaunch): Promise<EngineProcess> {
  const { dataFolder, account } = launch;
  const child = forkProgram({
    program: './watchdog-child',
    base: import.meta.url,
    cwd: dataFolder,
    args: [
      join(launch.binaries, 'bin', 'postgres'),
      dataFolder,
      String(account?.uid ?? ''),
      String(account?.gid ?? ''),
      '-D',
      dataFolder,
      '-p',
      String(launch.port),
      ...Object.entries({ ...settings, ...(launch.isThrowAway && { fsync: 'off' }) }).flatMap(([name, value]) => [
        '-c',
        `${name}=${value}`,
      ]),
    ],
  });
  const output = new LastLines(child.stderr, launch.onLine);
  return untilReady({
    engine: 'Postgres',
    child,
    ask: () => ensureDatabase(launch),
    isAlive: () => answers(launch),
    explain: () => output.last(/FATAL|PANIC|ERROR/),
    endGently: () => child.kill('SIGTERM'),
    readyTimeoutMs,
    stopTimeoutMs,
  });
}

/** Whether the server responds with a result or an error; it returns errors during recovery. Never rejects. */
async function answers({ port, password, database }: ServerLaunch): Promise<boolean> {
  const client = new pg.Client({
    host: '127.0.0.1',
    port,
    user,
    password,
    database,
    connectionTimeoutMillis: 10_000,
    query_timeout: 10_000,
  });
  client.on('error', () => {});
  try {
    await client.connect();
    await client.query('SELECT 1');
    return true;
  } catch (error) {
    return error instanceof pg.DatabaseError;
  } finally {
    // Not awaited, because a suspended server does not close the connection.
    client.end().catch(() => {});
  }
}

/** Returns `ready`, or the reason why not yet. @throws ENGINE_START_FAILED if the cluster has another password. */
async function ensureDatabase({ port, password, database }: ServerLaunch): Promise<string> {
  const client = new pg.Client({
    host: '127.0.0.1',
    port,
    user,
    password,
    database: 'postgres',
    connectionTimeoutMillis: 5_000,
  });
  // If the connection breaks later, the running query fails and reports the error.
  client.on('error', () => {});
  try {
    await client.connect();
    const found = await client.query('SELECT 1 FROM pg_database WHERE datname = $1', [database]);
    if (found.rowCount === 0) await client.query(`CREATE DATABASE ${client.escapeIdentifier(database)}`);
    return 'ready';
  } catch (error) {
    if (isSystemError(error, wrongPassword)) {
      const reason = 'postgres.password does not match the password of its data';
      throw runlakeError('ENGINE_START_FAILED', { engine: 'Postgres', reason }, { cause: error });
    }
    return error instanceof Error ? error.message : String(error);
  } finally {
    await client.end().catch(() => {});
  }
}
