import { runlakeError } from '../../errors/runlake-error.ts';
import { forkProgram } from '../child-program.ts';
import { untilReady } from '../engine-child.ts';
import { LastLines } from '../last-lines.ts';
import { endLeftover, recordProcess } from '../leftover.ts';
import type { EngineProcess } from '../supervise-engine.ts';
import { lastError } from './last-error.ts';
import { serverFiles } from './server-config.ts';

export interface ServerLaunch {
  readonly library: string;
  readonly folder: string;
  readonly port: number;
  readonly user: string;
  readonly password: string;
  readonly database: string;
  /** Identifies this server, in case another program has taken the port and responds to all requests. */
  readonly displayName: string;
}

const readyTimeoutMs = 30_000;
const stopTimeoutMs = 10_000;

/** The session of this query keeps the server running: when the query is killed, the engine shuts down gracefully. */
const keeper = 'SELECT sleepEachRow(0.2) FROM system.numbers';
const startUp = `SYSTEM START LISTEN HTTP; ${keeper} SETTINGS max_block_size=1, function_sleep_max_microseconds_per_block=0 FORMAT Null`;

/**
 * Starts one server process and waits until it accepts the user, the password and the query that creates the database.
 *
 * @throws ENGINE_START_FAILED; the process has exited then.
 */
export async function launchServer(launch: ServerLaunch): Promise<EngineProcess> {
  const { folder, port } = launch;
  const files = serverFiles(folder);
  await endLeftover(files.process);
  const child = forkProgram({
    program: './server-child',
    base: import.meta.url,
    cwd: folder,
    args: [
      launch.library,
      `--path=${files.data}`,
      `--config-file=${files.config}`,
      `--http_port=${port}`,
      '--listen_host=127.0.0.1',
      '--query',
      startUp,
    ],
  });
  if (child.pid !== undefined) recordProcess(files.process, child.pid);
  const output = new LastLines(child.stderr);
  const startedAtMs = Date.now();
  return untilReady({
    engine: 'ClickHouse',
    child,
    ask: () => ensureDatabase(launch),
    isAlive: async () => (await ask(launch, 'SELECT 1')).answered,
    explain: () => output.last(/Exception/) ?? lastError(files.errorLog, startedAtMs) ?? output.last(/returned/),
    endGently: () => ask(launch, `KILL QUERY WHERE query LIKE '${keeper}%' ASYNC`),
    readyTimeoutMs,
    stopTimeoutMs,
  });
}

/**
 * Returns `ready`, or the reason why not yet. @throws ENGINE_START_FAILED if the server is up but cannot create the database.
 */
async function ensureDatabase(launch: ServerLaunch): Promise<string> {
  const { answered, text } = await ask(launch, `CREATE DATABASE IF NOT EXISTS ${launch.database} ENGINE = Atomic`);
  if (answered && text !== '') throw runlakeError('ENGINE_START_FAILED', { engine: 'ClickHouse', reason: text });
  return answered ? 'ready' : text;
}

/** Runs a query. `text` is empty on success, otherwise the error of the server or of the connection. Never rejects. */
async function ask(
  { port, user, password, displayName }: ServerLaunch,
  query: string,
): Promise<{ answered: boolean; text: string }> {
  try {
    const answer = await fetch(`http://127.0.0.1:${port}/`, {
      method: 'POST',
      body: query,
      // At shutdown the server waits for open connections.
      headers: { 'X-ClickHouse-User': user, 'X-ClickHouse-Key': password, Connection: 'close' },
      signal: AbortSignal.timeout(5_000),
    });
    const text = (await answer.text()).trim().slice(0, 500);
    const isOurs = answer.headers.get('X-ClickHouse-Server-Display-Name') === displayName;
    if (!isOurs) return { answered: false, text: 'another server uses the port' };
    return { answered: true, text: answer.ok ? '' : text };
  } catch (error) {
    return { answered: false, text: error instanceof Error ? error.message : String(error) };
  }
}
