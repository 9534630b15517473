import { type ChildProcess, execFile, fork } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { memoryMib } from '../ingest-load/process-figures.ts';
import type { AgentServer } from './agent-server.ts';

const folder = fileURLToPath(new URL('reference/', import.meta.url));
const graph = fileURLToPath(new URL('graphs/burst.js', import.meta.url));
const startTimeoutMs = 60_000;

/** Starts the open reference server with its default of ten workers in a separate process; installs it if necessary. */
export async function startReference(): Promise<AgentServer> {
  await install();
  // Inside its folder, so that the graph resolves the packages of the server.
  const cwd = mkdtempSync(join(folder, 'project-'));
  copyFileSync(graph, join(cwd, 'burst.js'));
  const child = fork(join(folder, 'serve.js'), [cwd, './burst.js:graph'], {
    cwd,
    env: { PATH: process.env.PATH, NODE_ENV: 'production', LOG_LEVEL: 'error' },
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    execArgv: [],
  });
  const end = async () => {
    if (isRunning(child)) {
      const exited = once(child, 'exit');
      child.kill('SIGKILL');
      await exited;
    }
    rmSync(cwd, { recursive: true, force: true });
  };
  try {
    const [{ url }] = (await Promise.race([
      once(child, 'message', { signal: AbortSignal.timeout(startTimeoutMs) }),
      once(child, 'exit').then(([code]) => Promise.reject(new Error(`it exited with ${code}`))),
    ])) as [{ url: string }];
    return { url, headers: {}, memoryMib: () => memoryMib(child.pid!, 'VmRSS'), end };
  } catch (error) {
    await end();
    throw new Error('The reference server did not start.', { cause: error });
  }
}

/**
 * Installs the packages of its lock file, once for each state of that file. Not with `npm ci`, which requires that the
 * lock file also lists the packages of other platforms; a registry may not have all of them.
 */
async function install(): Promise<void> {
  const lock = readFileSync(join(folder, 'package-lock.json'), 'utf8');
  const mark = join(folder, 'node_modules', '.installed-lock.json');
  if (existsSync(mark) && readFileSync(mark, 'utf8') === lock) return;
  console.log('Installing the reference server, once (some 190 packages) ...');
  const words = [
    'install',
    '--no-save',
    '--no-audit',
    '--no-fund',
    '--ignore-scripts',
    '--prefer-offline',
    '--loglevel=error',
  ];
  await promisify(execFile)('npm', words, { cwd: folder });
  writeFileSync(mark, lock);
}

function isRunning({ exitCode, signalCode }: ChildProcess): boolean {
  return exitCode === null && signalCode === null;
}
