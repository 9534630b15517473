import { type ChildProcess, fork } from 'node:child_process';
import { createRequire } from 'node:module';
import { fileURLToPath, pathToFileURL } from 'node:url';

export interface ChildProgram {
  /** Path of the program relative to `base`, without extension, for example `./server-child`. */
  readonly program: string;
  /** `import.meta.url` of the caller; its extension decides whether TypeScript or built JavaScript runs. */
  readonly base: string;
  readonly args: readonly string[];
  readonly cwd: string;
}

/**
 * Starts a Node program as a child process with an IPC channel; its stderr is a pipe to the parent. The child leads its
 * own process group, so that Ctrl+C in a terminal reaches only the parent, which drains first. The child does not
 * inherit the environment, because settings may be secrets.
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
