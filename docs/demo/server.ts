/** The Runlake of the demo, in a temporary folder and on free ports. */
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { generateKey } from '../../pipelines/tenants/key-format.ts';
import { startChild } from './runlake-child.ts';

export interface DemoServer {
  readonly url: string;
  readonly adminKey: string;
  /** Returns the address of a path of the dashboard that signs in once. */
  linkTo(path: string): string;
  /** Root of local exports. */
  readonly exportFolder: string;
  /** Settles only if the server exits unexpectedly: rejects with its last output. */
  readonly ended: Promise<never>;
  /** Kills it with `kill -9` and restarts it in the same folder. Resolves with the new address. */
  crash(): Promise<DemoServer>;
}

/** Starts it. `stop` stops it and removes its folder, and may be called at any time, also twice. */
export function startServer(): { readonly ready: Promise<DemoServer>; stop(): Promise<void> } {
  const folder = mkdtempSync(join(tmpdir(), 'runlake-demo-'));
  const exportFolder = join(folder, 'bucket');
  mkdirSync(exportFolder);
  const adminKey = generateKey();
  const settings = {
    RUNLAKE_DATA_DIR: join(folder, 'data'),
    RUNLAKE_LOCAL_EXPORT_ROOT: exportFolder,
    RUNLAKE_PORT: '0',
    RUNLAKE_BOOTSTRAP_API_KEY: adminKey,
    RUNLAKE_LOG_LEVEL: 'warn',
    RUNLAKE_TOOLS_PORT: '0',
  };
  let child = startChild(settings);
  let stopped = false;

  const serving = async (): Promise<DemoServer> => {
    const { ended, ready, signInToken } = child;
    const { url } = await ready;
    const linkTo = (path: string) => `${url}/signin?to=${encodeURIComponent(path)}#once=${signInToken()}`;
    return { url, linkTo, adminKey, exportFolder, ended, crash };
  };
  const crash = async (): Promise<DemoServer> => {
    await child.end('SIGKILL');
    // Do not start a process after `stop`.
    if (stopped) return new Promise(() => {});
    child = startChild(settings);
    return serving();
  };
  return {
    ready: serving(),
    async stop() {
      stopped = true;
      await child.end('SIGTERM');
      rmSync(folder, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
    },
  };
}
