import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { appendFileSync, chmodSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { withFreePorts } from '../../infra/embedded/free-port.ts';
import type { EngineProcess } from '../../infra/embedded/supervise-engine.ts';
import { logger } from '../silent-logger.ts';
import type { LaunchOptions, PartValues } from '../stack/part.ts';
import { allParts } from '../stack/parts/all-parts.ts';
import { shardFolder } from '../stack/parts/clickhouse.ts';
import { loadStackSettings, type StackPartName } from '../stack/stack-settings.ts';
import { openTools } from '../stack/tools.ts';

/** A separate server, started like those of the native stack. A test may kill it and fill its disk. */
export interface DedicatedServer {
  readonly values: PartValues;
  /** Data folder. */
  readonly folder: string;
  /** Sends SIGKILL. The server stays down until {@link DedicatedServer.start}. */
  kill(): Promise<void>;
  /** Restarts it with the same data and ports. */
  start(): Promise<void>;
  /** Fills the disk of the server; undefined if no separate disk could be mounted. */
  readonly fillDisk?: (() => void) | undefined;
  freeDisk(): void;
  remove(): Promise<void>;
}

export async function startDedicatedServer(name: StackPartName, { diskMiB }: { readonly diskMiB?: number } = {}) {
  const part = allParts[name];
  const folder = mkdtempSync(join(tmpdir(), `runlake-crash-${name}-`));
  // Postgres runs as another user if this process runs as root.
  chmodSync(folder, 0o711);
  const hasDisk = diskMiB !== undefined && mount(folder, diskMiB);
  const secrets = new Map<string, string>();
  const secret = (of: string) => {
    const made = secrets.get(of) ?? randomBytes(24).toString('base64url');
    secrets.set(of, made);
    return made;
  };
  const installation = await part.install(openTools(loadStackSettings(), () => {}));
  let options: LaunchOptions = { folder, installation, ports: [], secret, log: () => {}, logger, isShortLived: true };
  let running: EngineProcess | undefined;
  const track = (started: EngineProcess) => {
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
    const launched = await withFreePorts(part.portCount, (ports) => {
      // Delete the files of an earlier attempt with other ports.
      rmSync(join(folder, name), { recursive: true, force: true });
      options = { ...options, ports };
      return part.launch(options);
    });
    track(launched);
  } catch (error) {
    await remove();
    throw error;
  }
  const server: DedicatedServer = {
    values: part.values(options),
    folder: join(folder, name),
    async kill() {
      const killed = running;
      if (killed === undefined) return;
      for (const pid of listServerProcesses(name, folder)) killProcess(pid);
      // The supervisors of ClickHouse and Postgres restart them unless they are stopped: stop in the same tick, too
      // late for the server to receive it.
      if (name === 'clickhouse' || name === 'postgres') await killed.stop();
      await killed.exited;
    },
    async start() {
      if (running === undefined) track(await part.launch(options));
    },
    ...(hasDisk
      ? {
          fillDisk() {
            const chunk = Buffer.alloc(1024 * 1024);
            // The server writes concurrently, so the free space is unknown.
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

/** Returns all processes of the server, so that none of them can complete its current work. */
function listServerProcesses(name: StackPartName, folder: string): number[] {
  const read = (...path: string[]) => readFileSync(join(folder, name, ...path), 'utf8');
  const { clickhouseShards } = loadStackSettings();
  if (name === 'clickhouse' && clickhouseShards > 1) {
    const folders = Array.from({ length: clickhouseShards }, (_, index) => shardFolder(folder, index + 1));
    return folders.map((each) => readProcess(join(each, name, 'process.json')));
  }
  if (name !== 'postgres') return [readProcess(join(folder, name, 'process.json'))];
  const first = Number.parseInt(read('data', 'postmaster.pid'), 10);
  const others = readFileSync(`/proc/${first}/task/${first}/children`, 'utf8').trim();
  return [first, ...others.split(' ').filter(Boolean).map(Number)];
}

function readProcess(path: string): number {
  return (JSON.parse(readFileSync(path, 'utf8')) as { pid: number }).pid;
}

function killProcess(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // The process has already exited.
  }
}

/**
 * Mounts a small disk at `folder`.
 *
 * @returns false, with the reason printed, if this user is not allowed to mount.
 */
function mount(folder: string, sizeMiB: number): boolean {
  try {
    execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${sizeMiB}m,mode=711`, 'tmpfs', folder], { stdio: 'pipe' });
    return true;
  } catch (error) {
    console.log(`No separate disk for a server, because ${error instanceof Error ? error.message.trim() : error}`);
    return false;
  }
}
