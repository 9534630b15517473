import { type ChildProcess, fork } from 'node:child_process';
import { createRequire } from 'node:module';
import { fileURLToPath, pathToFileURL } from 'node:url';

export interface ChildProgram {
  /** Path of the program beside `base`, without ending, as `./server-child`. */
  readonly program: string;
  /** `import.meta.url` of the caller; its ending says whether TypeScript or built JavaScript runs. */
  readonly base: string;
  readonly args: readonly string[];
  readonly cwd: string;
}

/**
 * Starts a small Node program as a child that hears its parent over IPC; its standard error is a pipe to the parent.
 * The child is the leader of its own process group, so that Ctrl+C in a terminal reaches only the parent, which drains
 * first. It gets no environment of ours: settings may be secrets.
 */
export function forkProgram({ program, base, args, cwd }: ChildProgram): ChildProcess {
  const typescript = base.endsWith('.ts');
  const path = fileURLToPath(new URL(`${program}.${typescript ? 'ts' : 'js'}`, base));
  const execArgv = typescript ? ['--import', pathToFileURL(createRequire(base).resolve('tsx')).href] : [];
  return fork(path, [...args], {
    cwd,
    execArgv,
    detached: true,
    env: { LC_ALL: 'C', TZ: 'UTC' },
    stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
  });
}
