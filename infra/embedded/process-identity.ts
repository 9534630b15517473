/**
 * Identifies processes by process id and start time, because process ids are reused. Records processes in files, so
 * that a later process can detect what a dead process has left behind.
 */
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { lstat, mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { deleteTree } from '../isolation/untrusted-tree.ts';
import type { Logger } from '../telemetry/logger.ts';
import { poll } from '../timeouts/poll.ts';
import { isSystemError, readFileIfExists, writePrivateFile } from './private-file.ts';

/**
 * Returns the boot and the start time of process `pid`. They distinguish the process from all other processes that use
 * the same process id.
 *
 * @returns `undefined` if the process does not exist or is a zombie.
 */
export function readProcessIdentity(pid: number): string | undefined {
  if (!isRunning(pid)) return undefined;
  return process.platform === 'linux' ? readLinuxIdentity(pid) : readPsIdentity(pid);
}

/** Returns true if the process with this identity is still running. */
export function isSameProcess(pid: number, identity: string): boolean {
  return readProcessIdentity(pid) === identity;
}

function isRunning(pid: number): boolean {
  if (!Number.isInteger(pid) || pid <= 0) return false;
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    // EPERM means that the process exists and belongs to another user.
    return isSystemError(error, 'EPERM');
  }
}

function readLinuxIdentity(pid: number): string | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The second field is the program name in parentheses. It may contain any character, so parsing starts after the
    // last parenthesis.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    if (fields[0] === 'Z' || fields[0] === 'X') return undefined;
    const boot = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
    return `${boot}/${fields[19]}`;
  } catch (error) {
    if (isSystemError(error, 'ENOENT') || isSystemError(error, 'ESRCH')) return undefined;
    throw error;
  }
}

function readPsIdentity(pid: number): string | undefined {
  try {
    const [state = '', ...started] = execFileSync('ps', ['-o', 'stat=,lstart=', '-p', String(pid)], {
      encoding: 'utf8',
      env: { LC_ALL: 'C', TZ: 'UTC', PATH: '/bin:/usr/bin' },
    })
      .trim()
      .split(/\s+/);
    return state === '' || state.startsWith('Z') ? undefined : started.join(' ');
  } catch {
    // `ps` exits with 1 if the process does not exist.
    return undefined;
  }
}

/** Waits until `isGone` returns true. @returns false after the timeout. */
export async function waitForExit(isGone: () => boolean, timeoutMs: number): Promise<boolean> {
  return poll(isGone, { intervalMs: 10, timeoutMs });
}

const exitTimeoutMs = 5_000;

interface ProcessRecord {
  readonly pid: number;
  readonly identity: string;
}

/** Formats the identity of a process as text for a file. {@link parseProcess} parses the text. */
export function describeProcess(pid: number): string {
  const record: ProcessRecord = { pid, identity: readProcessIdentity(pid) ?? '' };
  return JSON.stringify(record);
}

/**
 * Parses the text that {@link describeProcess} returns.
 *
 * @returns `undefined` if the text does not describe a process.
 */
export function parseProcess(text: string): ProcessRecord | undefined {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value !== 'object' || value === null || !('pid' in value) || !('identity' in value)) return undefined;
    return { pid: Number(value.pid), identity: String(value.identity) };
  } catch {
    return undefined;
  }
}

/** Records the server process in a file, so that the next start can identify it. */
export function recordProcess(path: string, pid: number): void {
  writePrivateFile(path, describeProcess(pid));
}

/**
 * Kills the recorded server process if it is still running, because it is suspended or has not yet reacted to the death
 * of its parent. A different process with the same process id is not killed. The caller holds the data folder's lock.
 */
export async function killLeftoverProcess(path: string): Promise<void> {
  const recorded = parseProcess(readFileIfExists(path) ?? '');
  if (!recorded || !isSameProcess(recorded.pid, recorded.identity)) return;
  try {
    process.kill(recorded.pid, 'SIGKILL');
  } catch {
    // The process has just exited.
  }
  await waitForExit(() => !isSameProcess(recorded.pid, recorded.identity), exitTimeoutMs);
}

/** Name of the file that records which process owns a folder. */
const ownerFile = 'owner.json';
/**
 * Minimum age at which a folder without an owner file is deleted. A younger folder may still be in the process of being
 * created. An older folder was left by a process that died while creating it.
 */
const minOrphanAgeMs = 60_000;

/**
 * Creates a folder below `root` for files that this process needs while it is running, and deletes the folders of dead
 * processes of the same user. Other users may be able to write to `root`; their folders are not opened.
 *
 * @param options `prefix` of the folder names, which distinguishes them in a shared `root`; `beforeDelete` is called
 *   for the folder of a dead process. A folder that cannot be deleted is logged.
 */
export async function createProcessFolder(
  root: string,
  options: {
    readonly prefix?: string;
    readonly beforeDelete?: (folder: string) => Promise<void>;
    readonly logger?: Pick<Logger, 'warn'> | undefined;
  } = {},
): Promise<string> {
  const { prefix = '', beforeDelete, logger } = options;
  await mkdir(root, { recursive: true, mode: 0o700 });
  for (const name of await readdir(root)) {
    const isOurs = name.startsWith(prefix) && /^\d+-[\da-f]{12}$/.test(name.slice(prefix.length));
    const folder = join(root, name);
    if (!isOurs || !(await isOrphan(folder))) continue;
    try {
      await beforeDelete?.(folder);
      await deleteTree(folder);
    } catch (err) {
      logger?.warn({ err, folder }, 'folder of a dead process not deleted');
    }
  }
  const own = join(root, `${prefix}${process.pid}-${randomBytes(6).toString('hex')}`);
  await mkdir(own, { mode: 0o700 });
  await writeFile(join(own, ownerFile), describeProcess(process.pid));
  return own;
}

async function isOrphan(folder: string): Promise<boolean> {
  const made = await lstat(folder).catch(() => undefined);
  if (!made?.isDirectory() || made.uid !== process.getuid?.()) return false;
  const owner = parseProcess(await readFile(join(folder, ownerFile), 'utf8').catch(() => ''));
  return owner ? !isSameProcess(owner.pid, owner.identity) : Date.now() - made.mtimeMs > minOrphanAgeMs;
}
