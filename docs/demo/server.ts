/**
 * A Runlake of the demo's own: built code, a throw-away folder, a free port, none of the user's settings.
 *
 * It runs in a process group of its own, so that Ctrl-C reaches the demo alone, which then stops it in order: drain,
 * engines, folder.
 */
import { spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { generateKey } from '../../pipelines/tenants/key-format.ts';

export interface DemoServer {
  readonly url: string;
  readonly adminKey: string;
  /** Root of local exports. */
  readonly exportFolder: string;
  /** Settles only if the server ends by itself: rejects with what it said last. */
  readonly ended: Promise<never>;
  /** Stops it and removes its folder. May be called at any time, also twice. */
  stop(): Promise<void>;
}

const program = fileURLToPath(new URL('../../dist/api/command-line/runlake.js', import.meta.url));
const startWithinMs = 60_000;
const stopWithinMs = 40_000;

export function startServer(): { readonly ready: Promise<DemoServer>; stop(): Promise<void> } {
  const folder = mkdtempSync(join(tmpdir(), 'runlake-demo-'));
  const exportFolder = join(folder, 'bucket');
  mkdirSync(exportFolder);
  const adminKey = generateKey();
  const child = spawn(process.execPath, [program, 'all'], {
    env: {
      ...withoutSettings(process.env),
      RUNLAKE_DATA_DIR: join(folder, 'data'),
      RUNLAKE_LOCAL_EXPORT_ROOT: exportFolder,
      RUNLAKE_PORT: '0',
      RUNLAKE_BOOTSTRAP_API_KEY: adminKey,
      RUNLAKE_LOG_LEVEL: 'warn',
    },
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true,
  });
  let output = '';
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
    throw new Error(`Runlake ended by itself. It said:\n${output}`);
  });
  ended.catch(() => {});
  const stop = async () => {
    stopping = true;
    const timer = setTimeout(() => child.kill('SIGKILL'), stopWithinMs);
    if (child.exitCode === null && child.signalCode === null && child.pid !== undefined) {
      child.kill('SIGTERM');
      await exited;
    }
    clearTimeout(timer);
    rmSync(folder, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
  };
  const answers = new Promise<DemoServer>((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`Runlake did not answer in time:\n${output}`)), startWithinMs);
    void exited.then(() => clearTimeout(timer));
    const read = (chunk: Buffer) => {
      output = (output + chunk).slice(-20_000);
      const [, url] = /Runlake answers at (\S+)/.exec(output) ?? [];
      if (url === undefined) return;
      clearTimeout(timer);
      resolve({ url, adminKey, exportFolder, ended, stop });
    };
    child.stdout.on('data', read);
    child.stderr.on('data', read);
  });
  return { ready: Promise.race([answers, ended]), stop };
}

function withoutSettings(environment: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(environment).filter(([name]) => !name.startsWith('RUNLAKE_')));
}
