import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';

/** Path of the built `runlake` program. Requires `make build`, which `make test` runs. */
export const builtProgram = fileURLToPath(new URL('../dist/api/command-line/runlake.js', import.meta.url));

export interface CommandEnd {
  readonly code: number;
  readonly output: string;
  readonly errors: string;
}

/** Runs `runlake <words>` from the build until it exits; its environment is `PATH` and `environment`. */
export function builtCommand(words: readonly string[], environment: Readonly<Record<string, string>>) {
  return new Promise<CommandEnd>((resolve) => {
    const env = { PATH: process.env.PATH, ...environment };
    execFile(process.execPath, [builtProgram, ...words], { env }, (error, output, errors) =>
      resolve({ code: typeof error?.code === 'number' ? error.code : 0, output, errors }),
    );
  });
}
