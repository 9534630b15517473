import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';

/** `runlake`, as it was built. `make build` has to have run: the test command does that. */
export const builtProgram = fileURLToPath(new URL('../dist/api/command-line/runlake.js', import.meta.url));

export interface CommandEnd {
  readonly code: number;
  readonly output: string;
  readonly errors: string;
}

/** Runs `runlake <words>` out of the built code, with no more environment than given, until it ends. */
export function builtCommand(words: readonly string[], environment: Readonly<Record<string, string>>) {
  return new Promise<CommandEnd>((resolve) => {
    const env = { PATH: process.env.PATH, ...environment };
    execFile(process.execPath, [builtProgram, ...words], { env }, (error, output, errors) =>
      resolve({ code: typeof error?.code === 'number' ? error.code : 0, output, errors }),
    );
  });
}
