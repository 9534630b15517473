import type { ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdirSync, statSync } from 'node:fs';
import { totalmem } from 'node:os';
import { join } from 'node:path';
import { runlakeError } from '../../errors/runlake-error.ts';
import type { Logger } from '../../telemetry/logger.ts';
import { forkProgram, LastLines } from '../child-program.ts';
import { createFixedPortLauncher } from '../free-port.ts';
import { writePrivateFile } from '../private-file.ts';
import { killLeftoverProcess, recordProcess } from '../process-identity.ts';
import {
  type EngineExit,
  type EngineProcess,
  type SupervisionTimes,
  superviseEngine,
  waitUntilReady,
} from '../supervise-engine.ts';
import {
  buildServerConfig,
  buildUsersConfig,
  findLibrary,
  getServerFiles,
  keepRunningSql,
  type LocalCluster,
  readErrorLog,
} from './server-files.ts';

export interface EmbeddedClickhouse {
  /**
   * URL of the server, as `http://user:password@127.0.0.1:port/database`. It does not change when the engine restarts.
   */
  readonly url: string;
  /** Resolves when the engine has ended permanently. Never rejects. */
  readonly exited: Promise<EngineExit>;
  stop(): Promise<void>;
}

const user = 'runlake';
const database = 'runlake';
const bytesPerGib = 1024 ** 3;

/**
 * Starts a ClickHouse server in a child process, on a loopback port, with a password and with its data in
 * `<folder>/clickhouse`. Resolves when the server is ready. A server that exits unexpectedly is restarted.
 *
 * @param port default: a free port.
 * @param password default: a new password at each startup.
 * @param memoryLimitBytes memory limit of the server. Default: half of the machine's memory, at least 1 GiB.
 * @throws ENGINE_PACKAGE_MISSING; ENGINE_START_FAILED with the engine's last error.
 */
export async function startClickhouse(options: {
  readonly folder: string;
  readonly memoryLimitBytes?: number;
  readonly port?: number;
  readonly password?: string;
  readonly logger?: Logger;
  readonly times?: SupervisionTimes;
  /** The cluster that the server belongs to. All servers of a cluster have the same password. */
  readonly cluster?: LocalCluster;
}): Promise<EmbeddedClickhouse> {
  const library = findLibrary();
  const folder = join(options.folder, 'clickhouse');
  const files = getServerFiles(folder);
  const { password = randomBytes(24).toString('base64url'), times = {}, cluster } = options;
  mkdirSync(files.data, { recursive: true, mode: 0o700 });
  const displayName = `runlake-${randomBytes(8).toString('hex')}`;
  writePrivateFile(
    files.config,
    buildServerConfig(
      folder,
      options.memoryLimitBytes ?? getDefaultMemoryLimitBytes(),
      displayName,
      cluster && { ...cluster, user, password },
    ),
  );
  writePrivateFile(files.usersConfigPath, buildUsersConfig(user, password));

  const server = createFixedPortLauncher(options.port, (port) =>
    launchServer({ library, folder, port, tcpPort: cluster?.tcpPort, password, displayName, times }),
  );
  const engine = await superviseEngine('ClickHouse', server.launch, options.logger, times);
  return {
    url: `http://${user}:${password}@127.0.0.1:${server.port}/${database}`,
    exited: engine.exited,
    stop: () => engine.stop(),
  };
}

function getDefaultMemoryLimitBytes(): number {
  // If no limit is set, `constrainedMemory` is zero or extremely large.
  const allowed = process.constrainedMemory() || totalmem();
  return Math.max(bytesPerGib, Math.floor(Math.min(allowed, totalmem()) / 2));
}

interface ServerLaunch {
  readonly library: string;
  readonly folder: string;
  readonly port: number;
  readonly tcpPort: number | undefined;
  readonly password: string;
  /** Name that identifies this server, because another program may have taken the port and respond to all requests. */
  readonly displayName: string;
  readonly times: SupervisionTimes;
}

/** Startup timeout. The server loads all parts first: 8,000 parts of 60 columns took 28 s on a busy machine. */
const readyTimeoutMs = 120_000;

const buildStartUpSql = (listenSql: string) =>
  `${listenSql}; ${keepRunningSql} SETTINGS max_block_size=1, function_sleep_max_microseconds_per_block=0 FORMAT Null`;

/**
 * Starts one server process and waits until the server accepts the user, the password and the query that creates the
 * database.
 *
 * @throws ENGINE_START_FAILED. In that case, the process has exited.
 */
async function launchServer(launch: ServerLaunch): Promise<EngineProcess> {
  const { folder, port, tcpPort } = launch;
  const listen = `SYSTEM START LISTEN HTTP${tcpPort === undefined ? '' : '; SYSTEM START LISTEN TCP'}`;
  const files = getServerFiles(folder);
  await killLeftoverProcess(files.process);
  const child = forkProgram({
    program: './server-child',
    base: import.meta.url,
    cwd: folder,
    args: [
      launch.library,
      `--path=${files.data}`,
      `--config-file=${files.config}`,
      `--http_port=${port}`,
      ...(tcpPort === undefined ? [] : [`--tcp_port=${tcpPort}`]),
      '--listen_host=127.0.0.1',
      '--query',
      buildStartUpSql(listen),
    ],
  });
  await recordServer(files.process, child);
  const output = new LastLines(child.stderr);
  const startedAtMs = Date.now();
  return waitUntilReady({
    engine: 'ClickHouse',
    child,
    probe: () => ensureDatabase(launch),
    isAlive: async () => (await runQuery(launch, 'SELECT 1')).responded,
    explain: () => output.last(/Exception/) ?? readLastError(files.errorLog, startedAtMs) ?? output.last(/returned/),
    requestShutdown: () => runQuery(launch, `KILL QUERY WHERE query LIKE '${keepRunningSql}%' ASYNC`),
    readyTimeoutMs,
    stopTimeoutMs: launch.times.stopTimeoutMs ?? 10_000,
  });
}

/** Records the server process. If that fails, as on a full disk, kills it: it would keep the data locked. */
async function recordServer(path: string, child: ChildProcess): Promise<void> {
  if (child.pid === undefined) return;
  try {
    recordProcess(path, child.pid);
  } catch (error) {
    const exit = once(child, 'exit');
    child.kill('SIGKILL');
    await exit;
    throw error;
  }
}

/**
 * Returns `ready`, or the reason why the server is not ready yet.
 *
 * @throws ENGINE_START_FAILED if the server is up but cannot create the database.
 */
async function ensureDatabase(launch: ServerLaunch): Promise<string> {
  const { responded, text } = await runQuery(launch, `CREATE DATABASE IF NOT EXISTS ${database} ENGINE = Atomic`);
  if (responded && text !== '') throw runlakeError('ENGINE_START_FAILED', { engine: 'ClickHouse', reason: text });
  return responded ? 'ready' : text;
}

/**
 * Runs a query. If the query succeeds, `text` is empty; otherwise it is the error of the server or of the connection.
 * Never rejects.
 */
async function runQuery(
  { port, password, displayName, times }: ServerLaunch,
  query: string,
): Promise<{ responded: boolean; text: string }> {
  try {
    const response = await fetch(`http://127.0.0.1:${port}/`, {
      method: 'POST',
      body: query,
      // Closes the connection, because the server waits for open connections at shutdown.
      headers: { 'X-ClickHouse-User': user, 'X-ClickHouse-Key': password, Connection: 'close' },
      signal: AbortSignal.timeout(times.probeTimeoutMs ?? 5_000),
    });
    const text = (await response.text()).trim().slice(0, 500);
    const isOurs = response.headers.get('X-ClickHouse-Server-Display-Name') === displayName;
    if (!isOurs) return { responded: false, text: 'another server uses the port' };
    return { responded: true, text: response.ok ? '' : text };
  } catch (error) {
    return { responded: false, text: error instanceof Error ? error.message : String(error) };
  }
}

const maxLineCharacters = 500;

/**
 * Returns the last error in ClickHouse's error log if the log was written after `sinceMs` (Unix time in ms). Of a crash, that
 * is the description of the signal: its last lines are those of the stack.
 */
function readLastError(path: string, sinceMs: number): string | undefined {
  const modifiedAtMs = statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 0;
  if (modifiedAtMs < sinceMs) return undefined;
  const lines = readErrorLog(path).filter((line) => /<(Error|Fatal|Critical)>/.test(line));
  const last = lines.at(-1);
  // Lines begin with a time, such as 2026.11.30 18:26:04.446003.
  const since = new Date(sinceMs).toISOString().replaceAll('-', '.').replace('T', ' ').slice(0, -1);
  const signal =
    last?.includes('<Fatal>') && lines.findLast((line) => line.includes('Signal description: ') && line >= since);
  return (signal || last)?.slice(0, maxLineCharacters);
}
