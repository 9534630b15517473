import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { appendFileSync, chmodSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onFreePorts } from '../../infra/embedded/free-port.ts';
import type { EngineProcess } from '../../infra/embedded/supervise-engine.ts';
import { createLogger } from '../../infra/telemetry/logger.ts';
import type { LaunchOptions, PartValues } from '../stack/part.ts';
import { allParts } from '../stack/parts/all-parts.ts';
import { loadStackSettings, type StackPartName } from '../stack/stack-settings.ts';
import { openTools } from '../stack/tools.ts';

/** A server of the test's own, made as those of the native stack are: to be stopped, killed and starved of disk. */
export interface OwnServer {
  readonly values: PartValues;
  /** Where its data lies. */
  readonly folder: string;
  /** SIGKILL. It stays away until {@link OwnServer.start}. */
  kill(): Promise<void>;
  /** On the same data and ports. */
  start(): Promise<void>;
  /** Takes all that is left of its disk; undefined where it could not be given a disk of its own. */
  readonly fillDisk?: (() => void) | undefined;
  freeDisk(): void;
  remove(): Promise<void>;
}

export async function ownServer(name: StackPartName, { diskMiB }: { readonly diskMiB?: number } = {}) {
  const part = allParts[name];
  const folder = mkdtempSync(join(tmpdir(), `runlake-crash-${name}-`));
  // Postgres runs as another user where this one is root.
  chmodSync(folder, 0o711);
  const hasDisk = diskMiB !== undefined && mount(folder, diskMiB);
  const secrets = new Map<string, string>();
  const secret = (of: string) => {
    const made = secrets.get(of) ?? randomBytes(24).toString('base64url');
    secrets.set(of, made);
    return made;
  };
  const installation = await part.install(openTools(loadStackSettings(), () => {}));
  const logger = createLogger('silent', 'test');
  let options: LaunchOptions = { folder, installation, ports: [], secret, log: () => {}, logger, isShortLived: true };
  let running: EngineProcess | undefined;
  const note = (started: EngineProcess) => {
    running = started;
    void started.exited.then(() => {
      running = undefined;
    });
  };
  const filler = join(folder, 'filler');
  const remove = async () => {
    await running?.stop();
    if (hasDisk) execFileSync('umount', ['-l', folder]);
    rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
  };
  try {
    const launched = await onFreePorts(part.portCount, (ports) => {
      // What an attempt on other ports wrote is about those.
      rmSync(join(folder, name), { recursive: true, force: true });
      options = { ...options, ports };
      return part.launch(options);
    });
    note(launched);
  } catch (error) {
    await remove();
    throw error;
  }
  const server: OwnServer = {
    values: part.values(options),
    folder: join(folder, name),
    async kill() {
      const killed = running;
      if (killed === undefined) return;
      for (const pid of processesOf(name, folder)) killProcess(pid);
      // ClickHouse and Postgres are started again by themselves where nobody told them to end: told in the same turn,
      // too late for the server to hear of it.
      if (name === 'clickhouse' || name === 'postgres') await killed.stop();
      await killed.exited;
    },
    async start() {
      if (running === undefined) note(await part.launch(options));
    },
    ...(hasDisk
      ? {
          fillDisk() {
            const chunk = Buffer.alloc(1024 * 1024);
            // The server writes too, so that nobody knows how much is left.
            for (let size = chunk.length; size >= 512; ) {
              try {
                appendFileSync(filler, chunk.subarray(0, size));
              } catch {
                size /= 2;
              }
            }
          },
        }
      : {}),
    freeDisk: () => rmSync(filler, { force: true }),
    remove,
  };
  return server;
}

/** The server, and where it has several processes all of them, so that none finishes what it was at. */
function processesOf(name: StackPartName, folder: string): number[] {
  const read = (...path: string[]) => readFileSync(join(folder, name, ...path), 'utf8');
  if (name !== 'postgres') return [(JSON.parse(read('process.json')) as [number])[0]];
  const first = Number.parseInt(read('data', 'postmaster.pid'), 10);
  const others = readFileSync(`/proc/${first}/task/${first}/children`, 'utf8').trim();
  return [first, ...others.split(' ').filter(Boolean).map(Number)];
}

function killProcess(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // It has just gone by itself.
  }
}

/** A small disk of its own at `folder`. @returns false, with the reason printed, where this user may not have one. */
function mount(folder: string, sizeMiB: number): boolean {
  try {
    execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${sizeMiB}m,mode=711`, 'tmpfs', folder], { stdio: 'pipe' });
    return true;
  } catch (error) {
    console.log(`No disk of a server's own, because ${error instanceof Error ? error.message.trim() : error}`);
    return false;
  }
}
