/**
 * Operating system accounts for processes that run user code.
 *
 * Invariant: no two processes have the same account, so that no process can read the files or the memory of another
 * process, or send signals to it.
 *
 *   1. `take` picks a random user id from a range that no regular account uses, and creates a folder that only this id
 *      can enter.
 *   2. The process is started with that id as user id and group id, and without supplementary groups.
 *   3. After that process has exited, `release` kills all other processes of the id and waits until none is left. Then it
 *      deletes the folder, and what the id has created in folders that all users can write to.
 *   4. `close` deletes the remaining folders.
 *   5. If this process is killed, a watchdog kills the processes of all its accounts and deletes their folders. If the
 *      watchdog is killed too, the next start does that. Ids are random, so that an old id is unlikely to be picked again.
 */
import { execFile, spawn } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { chmodSync, chownSync, lstatSync, mkdirSync, readdirSync, readFileSync } from 'node:fs';
import type { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { buildGraphEnvironment } from '../config/graph-environment.ts';
import { createProcessFolder, waitForExit } from '../embedded/process-identity.ts';
import { runlakeError } from '../errors/runlake-error.ts';
import type { Logger } from '../telemetry/logger.ts';
import { deleteShared, deleteTree } from './untrusted-tree.ts';

export interface ProcessAccount {
  readonly uid: number;
  readonly gid: number;
  /** Writable folder of the account, used as HOME and TMPDIR. */
  readonly home: string;
  /**
   * Kills all processes of the account, then deletes its files without waiting for that. Never rejects.
   *
   * @returns false if a process could not be ended. Its files are not deleted then.
   */
  release(): Promise<boolean>;
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
const minUserId = Math.min(...userIdRanges.map(({ first }) => first));

/**
 * @param readable files and folders that processes with such an account must be able to read.
 * @param closed files and folders that they must not be able to read; missing files and folders are ignored.
 * @returns the accounts, or the reason why they are not available on this machine.
 */
export async function openProcessAccounts(given: {
  readonly readablePaths: readonly string[];
  readonly closed: readonly string[];
  readonly logger?: Logger | undefined;
}): Promise<ProcessAccounts | string> {
  if (process.platform !== 'linux' || process.getuid?.() !== 0) return 'Runlake does not run as root';
  const range = userIdRanges.find(({ first, count }) => isMapped('uid', first, count) && isMapped('gid', first, count));
  if (range === undefined) return 'the user namespace maps too few user ids';
  const folder = await createProcessFolder(tmpdir(), {
    prefix: 'runlake-accounts-',
    beforeDelete: endOrphans,
    logger: given.logger,
  });
  // Sets the mode explicitly, because mkdir applies the umask. Other ids must be able to pass through this folder to
  // their own folders.
  chmodSync(folder, 0o711);
  const stopWatchdog = startWatchdog(folder);
  const cleanups = new Set<Promise<unknown>>();
  const accounts: ProcessAccounts = {
    take: () => createAccount(folder, range, cleanups),
    async close() {
      await Promise.all(cleanups);
      await deleteTree(folder).catch((err: unknown) => given.logger?.warn({ err, folder }, 'accounts not deleted'));
      stopWatchdog();
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

function createAccount(
  folder: string,
  { first, count }: (typeof userIdRanges)[number],
  cleanups: Set<Promise<unknown>>,
): ProcessAccount {
  const uid = first + randomInt(count);
  const home = join(folder, String(uid));
  mkdirSync(home, { mode: 0o700 });
  chownSync(home, uid, uid);
  const deleteFiles = () => Promise.allSettled([deleteTree(home), deleteShared({ uid, gid: uid })]);
  let released: Promise<boolean> | undefined;
  return {
    uid,
    gid: uid,
    home,
    release() {
      if (released === undefined) {
        released = endProcesses(uid);
        // The caller does not wait, because deleting many files takes time.
        const cleanup = released.then((areGone) => (areGone ? deleteFiles() : undefined));
        cleanups.add(cleanup);
        void cleanup.finally(() => cleanups.delete(cleanup));
      }
      return released;
    },
  };
}

/**
 * Program that kills all processes of a user id at once. The kernel does that for a process of the same id, also for
 * processes that are forked meanwhile. The program does not execute another one after it has changed its id, so that
 * processes of the id cannot trace it.
 */
const killProgram = `
const uid = Number(process.argv[1]);
if (!(uid >= ${minUserId})) process.exit(1);
process.setgid(uid);
process.setuid(uid);
if (process.getuid() !== uid || process.geteuid() !== uid) process.exit(1);
try { process.kill(-1, 'SIGKILL'); } catch (error) { if (error.code !== 'ESRCH') throw error; }`;

const killTimeoutMs = 10_000;
const exitTimeoutMs = 5_000;
const maxAttempts = 6;

/** Runs {@link killProgram}. @returns false if it has not ended as expected: processes of the id can stop or kill it. */
function runKillProgram(uid: number): Promise<boolean> {
  return new Promise((resolve) => {
    const child = spawn(process.execPath, ['-e', killProgram, '--', String(uid)], {
      cwd: '/',
      env: {},
      stdio: 'ignore',
      timeout: killTimeoutMs,
      killSignal: 'SIGKILL',
    });
    child.once('error', () => resolve(false));
    child.once('exit', (code) => resolve(code === 0));
  });
}

/** Kills all processes of a user id and waits until they have exited. @returns false if one is left. */
async function endProcesses(uid: number): Promise<boolean> {
  killProcesses(uid);
  for (let attempt = 0; attempt < maxAttempts; attempt += 1) {
    const wasKilled = await runKillProgram(uid);
    const areGone = await waitForExit(() => !killProcesses(uid), exitTimeoutMs);
    if (wasKilled && areGone) return true;
  }
  return false;
}

/** Kills the processes of the accounts in the folder of a dead process. @throws ISOLATED_FILES_UNUSABLE if one cannot be ended */
async function endOrphans(folder: string): Promise<void> {
  for (const name of readdirSync(folder)) {
    const uid = Number(name);
    if (!(uid >= minUserId) || lstatSync(join(folder, name)).uid !== uid) continue;
    if (await endProcesses(uid)) continue;
    const cause = `a process of user id ${uid} could not be ended`;
    throw runlakeError('ISOLATED_FILES_UNUSABLE', { action: 'deleted' }, { cause });
  }
}

/**
 * Script of the watchdog. `read` returns when the pipe to this process closes. Arguments: the folder of the accounts,
 * Node, and {@link killProgram}, which is tried again because processes of the id can kill it.
 */
const watchdogScript = `
read -r _
for home in "$1"/*/; do
  name=\${home%/}
  for attempt in 1 2 3; do "$2" -e "$3" -- "\${name##*/}" && break; done
done
rm -rf -- "$1"`;

/** Starts the watchdog of a folder of accounts. @returns stops it. */
function startWatchdog(folder: string): () => void {
  const child = spawn('/bin/sh', ['-c', watchdogScript, 'sh', folder, process.execPath, killProgram], {
    cwd: '/',
    env: { PATH: buildGraphEnvironment().PATH },
    stdio: ['pipe', 'ignore', 'ignore'],
    // Ctrl+C must not reach it.
    detached: true,
  });
  child.on('error', () => undefined);
  child.stdin.on('error', () => undefined);
  child.unref();
  (child.stdin as Socket).unref();
  return () => child.kill('SIGKILL');
}

/**
 * Arguments of `sh` that change to a folder and then become the program. Node changes to `cwd` before it changes the user
 * id, so with `cwd` a process could start in a folder that its account cannot enter. Exits with code 126 if it cannot.
 *
 * @param folder a relative path is entered without its parents, which the account need not be able to enter.
 * @param before script that is executed first.
 */
export function enterFolder(folder: string, program: string, args: readonly string[], before = ''): string[] {
  return ['-c', `${before}cd -P -- "$1" || exit 126; shift; exec "$@"`, 'sh', folder, program, ...args];
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
    await account.release();
  }
}
