/**
 * A Runlake in a child process: from the build, without settings of the user.
 *
 * It runs in its own process group, so that Ctrl-C reaches only the demo, which then stops in order: drain, engines,
 * folder.
 */
import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';

export interface RunlakeChild {
  /** Resolves with its address; rejects if it does not respond. */
  readonly ready: Promise<{ readonly url: string }>;
  /** Returns the token of the link that it prints, which signs in once. */
  signInToken(): string | undefined;
  /** Settles only if it exits unexpectedly: rejects with its last output. */
  readonly ended: Promise<never>;
  /** Stops it. May be called at any time, also twice. */
  end(signal: 'SIGTERM' | 'SIGKILL'): Promise<void>;
}

export const program = fileURLToPath(new URL('../../dist/api/command-line/runlake.js', import.meta.url));
const startTimeoutMs = 60_000;
const stopTimeoutMs = 40_000;

export function startChild(settings: Readonly<Record<string, string>>): RunlakeChild {
  const child = spawn(process.execPath, [program, 'all'], {
    env: { ...withoutSettings(process.env), ...settings },
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true,
  });
  let output = '';
  let token: string | undefined;
  let stopping = false;
  const exited = new Promise<void>((resolve) => {
    child.once('exit', () => resolve());
    child.once('error', (error) => {
      output += error.message;
      resolve();
    });
  });
  const ended = exited.then(() => {
    if (stopping) return new Promise<never>(() => {});
    throw new Error(`Runlake exited unexpectedly. Its output:\n${output}`);
  });
  ended.catch(() => {});
  const answers = new Promise<{ url: string }>((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`Runlake did not respond in time:\n${output}`)), startTimeoutMs);
    void exited.then(() => clearTimeout(timer));
    const read = (chunk: Buffer) => {
      output = (output + chunk).slice(-20_000);
      token ??= /signin#once=(\S+)/.exec(output)?.[1];
      const [, url] = /Runlake answers at (\S+)/.exec(output) ?? [];
      if (url === undefined) return;
      clearTimeout(timer);
      resolve({ url });
    };
    child.stdout.on('data', read);
    child.stderr.on('data', read);
  });
  return {
    ready: Promise.race([answers, ended]),
    signInToken: () => token,
    ended,
    async end(signal) {
      stopping = true;
      const timer = setTimeout(() => child.kill('SIGKILL'), stopTimeoutMs);
      if (child.exitCode === null && child.signalCode === null && child.pid !== undefined) {
        child.kill(signal);
        await exited;
      }
      clearTimeout(timer);
    },
  };
}

export function withoutSettings(environment: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(environment).filter(([name]) => !name.startsWith('RUNLAKE_')));
}
