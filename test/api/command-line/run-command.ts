import { type ChildProcess, spawn } from 'node:child_process';
import { builtProgram } from '../../built-program.ts';

export interface CommandResult {
  readonly code: number | null;
  /** Standard output and standard error together. */
  readonly text: string;
}

/** Runs `runlake <args>` from the built code with only the given environment, until it exits. `during` gets its process. */
export function runCommand(
  args: readonly string[],
  environment: Readonly<Record<string, string>>,
  during?: (child: ChildProcess) => Promise<void>,
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
  const ended = new Promise<CommandResult>((resolve) => child.once('close', (code) => resolve({ code, text })));
  return during === undefined ? ended : during(child).then(() => ended);
}
