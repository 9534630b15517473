/**
 * Operating system accounts for processes that run user code.
 *
 * Invariant: no two processes have the same account, so that no process can read the files or the memory of another
 * process, or send signals to it.
 *
 *   1. `take` picks a random user id from a range that no regular account uses, and creates a folder that only this id
 *      can enter.
 *   2. The process is started with that id as user id and group id, and without supplementary groups.
 *   3. After that process has exited, `release` kills all other processes of the id, then deletes the folder, and what
 *      the id has created in folders that all users can write to.
 *   4. `close` deletes the remaining folders. After a SIGKILL, the next start deletes the folders of the killed
 *      process. Ids are random, so that an old id is unlikely to be picked again.
 */
import { execFile } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { chmodSync, chownSync, mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { lstat, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { createProcessFolder } from '../embedded/process-identity.ts';

export interface ProcessAccount {
  readonly uid: number;
  readonly gid: number;
  /** Writable folder of the account, used as HOME and TMPDIR. */
  readonly home: string;
  release(): void;
}

export interface AccountSource {
  /** @throws if the folder cannot be created. */
  take(): ProcessAccount;
}

export interface ProcessAccounts extends AccountSource {
  close(): Promise<void>;
}

/**
 * Ranges of user ids. No distribution uses the first range. The second range is for user namespaces, which map only a
 * few ids.
 */
const userIdRanges = [
  { first: 0x7000_0000, count: 0x0fff_ffff },
  { first: 20_000, count: 40_000 },
] as const;
const maxSweeps = 10;

/**
 * @param readable files and folders that processes with such an account must be able to read.
 * @param closed files and folders that they must not be able to read; missing files and folders are ignored.
 * @returns the accounts, or the reason why they are not available on this machine.
 */
export async function openProcessAccounts(given: {
  readonly readablePaths: readonly string[];
  readonly closed: readonly string[];
}): Promise<ProcessAccounts | string> {
  if (process.platform !== 'linux' || process.getuid?.() !== 0) return 'Runlake does not run as root';
  const range = userIdRanges.find(({ first, count }) => isMapped('uid', first, count) && isMapped('gid', first, count));
  if (range === undefined) return 'the user namespace maps too few user ids';
  const folder = await createProcessFolder(tmpdir(), { prefix: 'runlake-accounts-' });
  // Sets the mode explicitly, because mkdir applies the umask. Other ids must be able to pass through this folder to
  // their own folders.
  chmodSync(folder, 0o711);
  const accounts: ProcessAccounts = {
    take: () => createAccount(folder, range),
    async close() {
      await rm(folder, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 }).catch(() => undefined);
    },
  };
  const reason = await findUnusableReason(accounts, given);
  if (reason === undefined) return accounts;
  await accounts.close();
  return reason;
}

function isMapped(kind: 'uid' | 'gid', first: number, count: number): boolean {
  return readFileSync(`/proc/self/${kind}_map`, 'utf8')
    .trim()
    .split('\n')
    .some((line) => {
      const [inside = 0, , length = 0] = line.trim().split(/\s+/).map(Number);
      return first >= inside && first + count <= inside + length;
    });
}

function createAccount(folder: string, { first, count }: (typeof userIdRanges)[number]): ProcessAccount {
  const uid = first + randomInt(count);
  const home = join(folder, String(uid));
  mkdirSync(home, { mode: 0o700 });
  chownSync(home, uid, uid);
  return {
    uid,
    gid: uid,
    home,
    release() {
      for (let sweep = 0; sweep < maxSweeps && killProcesses(uid); sweep += 1);
      // Not awaited, because deleting many files takes time.
      const remove = (path: string) => rm(path, { recursive: true, force: true }).catch(() => undefined);
      void remove(home);
      void listShared(uid).then((paths) => Promise.all(paths.map(remove)));
    },
  };
}

/** Folders in which all users can create files. */
const sharedFolders = new Set([tmpdir(), '/tmp', '/var/tmp', '/dev/shm']);

/** Lists what a user id has created in the folders that all users can write to. Never rejects. */
export async function listShared(uid: number): Promise<string[]> {
  const found: string[] = [];
  for (const folder of sharedFolders) {
    for (const name of await readdir(folder).catch(() => [])) {
      const path = join(folder, name);
      const stats = await lstat(path).catch(() => undefined);
      if (stats?.uid === uid) found.push(path);
    }
  }
  return found;
}

/** Kills all processes of a user id. @returns whether there were any. */
function killProcesses(uid: number): boolean {
  let foundAny = false;
  for (const pid of readdirSync('/proc')) {
    if (!/^\d+$/.test(pid)) continue;
    try {
      const status = readFileSync(`/proc/${pid}/status`, 'latin1');
      // Skips zombies. Reads the Uid line because the owner of /proc/<pid> is unreliable: root owns the folder of a
      // non-dumpable process.
      if (/^State:\s+Z/m.test(status) || !new RegExp(`^Uid:\\s+${uid}\\s`, 'm').test(status)) continue;
      foundAny = true;
      process.kill(Number(pid), 'SIGKILL');
    } catch {
      // The process has exited meanwhile.
    }
  }
  return foundAny;
}

/**
 * Program that checks the access of an account. It prints the paths of the first list that it cannot read, and the
 * paths of the second list that it can read.
 */
const probeProgram = `
const { accessSync, constants: { R_OK, X_OK }, readFileSync, statSync } = require('node:fs');
const can = (path) => {
  try { accessSync(path, statSync(path).isDirectory() ? R_OK | X_OK : R_OK); return true; } catch { return false; }
};
const opens = (path) => { try { readFileSync(path); return true; } catch { return false; } };
const [readable, closed] = process.argv.slice(1).map((list) => JSON.parse(list));
const parent = '/proc/' + process.ppid + '/environ';
console.log(JSON.stringify({
  unreadable: readable.filter((path) => !can(path)),
  open: [...closed.filter(can), ...[parent].filter(opens)],
  groups: process.getgroups(),
}));`;

async function findUnusableReason(
  accounts: AccountSource,
  { readablePaths, closed }: { readonly readablePaths: readonly string[]; readonly closed: readonly string[] },
): Promise<string | undefined> {
  const account = accounts.take();
  const { uid, gid, home } = account;
  try {
    const { stdout } = await promisify(execFile)(
      process.execPath,
      ['-e', probeProgram, '--', JSON.stringify(readablePaths), JSON.stringify(closed)],
      { uid, gid, cwd: '/', env: { HOME: home, TMPDIR: home }, timeout: 30_000 },
    );
    const { unreadable, open, groups } = JSON.parse(stdout) as Record<'unreadable' | 'open' | 'groups', string[]>;
    if (unreadable.length > 0) return `other users cannot read ${unreadable.join(', ')}`;
    if (open.length > 0) return `other users can read ${open.join(', ')}`;
    if (groups.some((group) => Number(group) !== gid)) return 'processes keep groups of root';
    return undefined;
  } catch (error) {
    return `no process starts under another user id: ${error instanceof Error ? error.message.split('\n')[0] : error}`;
  } finally {
    account.release();
  }
}
