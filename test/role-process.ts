import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { builtProgram } from './built-program.ts';

const startTimeoutMs = 120_000;
/**
 * Start slots. A test file starts at most two processes at a time: with two cores, more concurrent starts would slow
 * each other down.
 */
const slots: Promise<unknown>[] = [Promise.resolve(), Promise.resolve()];
let taken = 0;

/** A role in a separate process, from the build. */
export interface RoleProcess {
  /** Address of the main API; for the other roles, the address of their metrics and readiness. */
  readonly url: string;
  readonly pid: number;
  /** Returns the output of the process so far. */
  output(): string;
  /** Sends `signal`, by default SIGTERM. Resolves with the exit code when the process has exited. */
  end(signal?: NodeJS.Signals): Promise<number | null>;
}

/** Starts a role and waits until it prints its address. */
export function startRole(...options: Parameters<typeof start>): Promise<RoleProcess> {
  const slot = taken++ % slots.length;
  const started = (slots[slot] as Promise<unknown>).then(() => start(...options));
  slots[slot] = started.catch(() => undefined);
  return started;
}

async function start(
  role: 'all' | 'api' | 'ingest' | 'exports' | 'agents' | 'tools',
  environment: Readonly<Record<string, string>>,
  options: readonly string[] = [],
): Promise<RoleProcess> {
  const env = {
    PATH: process.env.PATH,
    RUNLAKE_PORT: '0',
    RUNLAKE_TOOLS_PORT: '0',
    RUNLAKE_METRICS_PORT: '0',
    RUNLAKE_LOG_LEVEL: 'warn',
    ...environment,
  };
  const child = spawn(process.execPath, [builtProgram, role, ...options], { env, stdio: ['ignore', 'pipe', 'pipe'] });
  const exited = once(child, 'exit').then(([code]) => code as number | null);
  let output = '';
  const url = await new Promise<string>((resolve, reject) => {
    const failed = (why: string) => reject(new Error(`runlake ${role} ${why}:\n${output}`));
    const timer = setTimeout(() => failed('did not come up'), startTimeoutMs);
    const read = (chunk: Buffer) => {
      output += chunk;
      const [, address] = /(?:Runlake answers at|metrics and readiness:) (http:[^\s)]+)/.exec(output) ?? [];
      if (address !== undefined) resolve(address);
    };
    child.stdout.on('data', read);
    child.stderr.on('data', read);
    void exited.then((code) => failed(`ended with ${code}`)).finally(() => clearTimeout(timer));
  }).catch((error: unknown) => {
    child.kill('SIGKILL');
    throw error;
  });
  return {
    url,
    pid: child.pid as number,
    output: () => output,
    async end(signal = 'SIGTERM') {
      if (isRunning(child)) child.kill(signal);
      return exited;
    },
  };
}

function isRunning({ exitCode, signalCode }: ChildProcess): boolean {
  return exitCode === null && signalCode === null;
}
