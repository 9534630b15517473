import { fault } from '../../errors/runlake-error.ts';
import { forkProgram } from '../child-program.ts';
import { untilReady } from '../engine-child.ts';
import { LastLines } from '../last-lines.ts';
import { endLeftover, noteProcess } from '../leftover.ts';
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
  /** Tells this server from a stranger that took the port first and answers everything. */
  readonly displayName: string;
}

const readyWithinMs = 30_000;
const stopWithinMs = 10_000;

/** The session of this query is what keeps the server up: once it is killed, the engine shuts down in good order. */
const keeper = 'SELECT sleepEachRow(0.2) FROM system.numbers';
const startUp = `SYSTEM START LISTEN HTTP; ${keeper} SETTINGS max_block_size=1, function_sleep_max_microseconds_per_block=0 FORMAT Null`;

/**
 * Starts one server process and waits until it answers a query as the user with the password, which also makes the database.
 *
 * @throws ENGINE_START_FAILED; then no process is left.
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
  if (child.pid !== undefined) noteProcess(files.process, child.pid);
  const output = new LastLines(child.stderr);
  const startedAtMs = Date.now();
  return untilReady({
    engine: 'ClickHouse',
    child,
    ask: () => ensureDatabase(launch),
    isAlive: async () => (await ask(launch, 'SELECT 1')).answered,
    explain: () => output.last(/Exception/) ?? lastError(files.errorLog, startedAtMs) ?? output.last(/returned/),
    endGently: () => ask(launch, `KILL QUERY WHERE query LIKE '${keeper}%' ASYNC`),
    readyWithinMs,
    stopWithinMs,
  });
}

/** `ready`, or why not yet. @throws ENGINE_START_FAILED where the server is up, and cannot make the database. */
async function ensureDatabase(launch: ServerLaunch): Promise<string> {
  const { answered, text } = await ask(launch, `CREATE DATABASE IF NOT EXISTS ${launch.database} ENGINE = Atomic`);
  if (answered && text !== '') throw fault('ENGINE_START_FAILED', { engine: 'ClickHouse', reason: text });
  return answered ? 'ready' : text;
}

/** What this server answered, nothing where all went well; or why it did not answer. Never rejects. */
async function ask(
  { port, user, password, displayName }: ServerLaunch,
  query: string,
): Promise<{ answered: boolean; text: string }> {
  try {
    const answer = await fetch(`http://127.0.0.1:${port}/`, {
      method: 'POST',
      body: query,
      // An open connection would make the server wait for it at its end.
      headers: { 'X-ClickHouse-User': user, 'X-ClickHouse-Key': password, Connection: 'close' },
      signal: AbortSignal.timeout(5_000),
    });
    const text = (await answer.text()).trim().slice(0, 500);
    const isOurs = answer.headers.get('X-ClickHouse-Server-Display-Name') === displayName;
    if (!isOurs) return { answered: false, text: 'another server has the port' };
    return { answered: true, text: answer.ok ? '' : text };
  } catch (error) {
    return { answered: false, text: error instanceof Error ? error.message : String(error) };
  }
}
