import { once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import { fault } from '../../errors/runlake-error.ts';
import { forkProgram } from '../child-program.ts';
import { LastLines } from '../last-lines.ts';
import type { EngineProcess } from '../supervise-engine.ts';
import { serverFiles } from './server-config.ts';

export interface ServerLaunch {
  readonly library: string;
  readonly folder: string;
  readonly port: number;
  readonly user: string;
  readonly password: string;
  readonly database: string;
}

const readyWithinMs = 30_000;
const pollMs = 15;
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
  const child = forkProgram({
    program: './engine-process',
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
  const output = new LastLines(child.stderr);
  let gone = false;
  const exited = new Promise<string>((resolve) => {
    child.once('error', (error) => resolve(error.message));
    child.once('close', (code, signal) => {
      resolve(output.last(/Exception|Error/) ?? `it ended with ${signal ?? `code ${code}`}`);
    });
  }).finally(() => {
    gone = true;
  });

  const deadlineMs = Date.now() + readyWithinMs;
  for (;;) {
    const answer = await ask(launch, `CREATE DATABASE IF NOT EXISTS ${launch.database} ENGINE = Atomic`);
    if (answer === 'done' && !gone) break;
    if (gone) throw fault('ENGINE_START_FAILED', { engine: 'ClickHouse', reason: await exited });
    if (Date.now() > deadlineMs) {
      child.kill('SIGKILL');
      await exited;
      throw fault('ENGINE_START_FAILED', { engine: 'ClickHouse', reason: `it did not answer within 30 s: ${answer}` });
    }
    await delay(pollMs);
  }

  return {
    exited,
    async stop() {
      if (gone) return;
      const deadline = setTimeout(() => child.kill('SIGKILL'), stopWithinMs);
      await ask(launch, `KILL QUERY WHERE query LIKE '${keeper}%' ASYNC`);
      await exited;
      clearTimeout(deadline);
      if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
    },
  };
}

/** `done`, or why not, in words. */
async function ask({ port, user, password }: ServerLaunch, query: string): Promise<string> {
  try {
    const answer = await fetch(`http://127.0.0.1:${port}/`, {
      method: 'POST',
      body: query,
      // An open connection would make the server wait for it at its end.
      headers: { 'X-ClickHouse-User': user, 'X-ClickHouse-Key': password, Connection: 'close' },
      signal: AbortSignal.timeout(5_000),
    });
    const text = await answer.text();
    return answer.ok ? 'done' : text.slice(0, 500);
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}
