import { execFile, spawn } from 'node:child_process';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { onTestFinished } from 'vitest';
import { folderForTest } from '../folders.ts';
import { readStackState } from './stack-state.ts';
import { takeDown } from './take-down.ts';

const program = fileURLToPath(new URL('./stack-command.ts', import.meta.url));

export interface Said {
  readonly code: number;
  /** Standard output and standard error together. */
  readonly text: string;
}

/** Creates a separate stack for one test: it runs the stack command on a folder that is removed when the test ends. */
export function createTestStack(environment: Record<string, string>) {
  const folder = join(folderForTest(), 'stack');
  onTestFinished(() => takeDown(folder));
  const env = { ...process.env, CI: '', RUNLAKE_STACK_DIR: folder, ...environment };
  const buildArgs = (args: readonly string[]) => ['--import', 'tsx', program, ...args];
  return {
    folder,
    run: (...args: string[]) =>
      new Promise<Said>((resolve) => {
        const child = execFile(process.execPath, buildArgs(args), { env }, (_error, stdout, stderr) =>
          resolve({ code: child.exitCode ?? -1, text: `${stdout}${stderr}` }),
        );
      }),
    start: (...args: string[]) => spawn(process.execPath, buildArgs(args), { env, stdio: 'ignore' }),
    state: () => readStackState(folder),
    /** Returns the connection settings of a part that is running. */
    values(name: string): Readonly<Record<string, string>> {
      const part = readStackState(folder)?.parts[name];
      if (part?.status !== 'up') throw new Error(`${name} is not up: ${JSON.stringify(part)}`);
      return part.values;
    },
  };
}
