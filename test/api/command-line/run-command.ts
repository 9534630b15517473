import { spawn } from 'node:child_process';
import { builtProgram } from '../../built-program.ts';

export interface CommandResult {
  readonly code: number | null;
  /** Standard output and standard error together. */
  readonly text: string;
}

/** Runs `runlake <args>` from the built code with only the given environment, until it exits. */
export function runCommand(
  args: readonly string[],
  environment: Readonly<Record<string, string>>,
): Promise<CommandResult> {
  const child = spawn(process.execPath, [builtProgram, ...args], {
    env: { PATH: process.env.PATH, RUNLAKE_LOG_LEVEL: 'warn', RUNLAKE_TOOLS_PORT: '0', ...environment },
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: 90_000,
    killSignal: 'SIGTERM',
  });
  let text = '';
  child.stdout.on('data', (chunk) => (text += chunk));
  child.stderr.on('data', (chunk) => (text += chunk));
  return new Promise((resolve) => child.once('close', (code) => resolve({ code, text })));
}
