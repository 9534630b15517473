/**
 * An exclusive lock on a folder. It consists of plain files and is released when its process dies.
 *
 * Invariant: of the files `lock.<n>`, the file with the highest n contains the holder, or is empty after a release.
 * This file is never deleted. Only a process that has verified that the holder is dead creates n + 1.
 *
 *   1. Read the highest file. If its holder is alive, refuse the lock.
 *   2. Write the identity of this process to a draft, and `link` the draft as the next number. The link is atomic and
 *      succeeds for only one process; all other processes start again at step 1.
 *   3. List the files again. If there is a higher file, this process was late, and another process has held the lock
 *      in the meantime. Delete the file of this process and start again at step 1.
 *   4. This process holds the lock. Delete the lower files.
 *   5. To release the lock, replace the content of the file with `{}` by a rename.
 *
 * A process that is killed may leave drafts and lower files. They have no effect, and the next holder deletes them in
 * step 4. It may also leave a file that contains the dead process. Step 1 detects this by comparing the start time,
 * because process ids are reused.
 */
import { randomBytes } from 'node:crypto';
import {
  accessSync,
  constants,
  existsSync,
  linkSync,
  mkdirSync,
  readdirSync,
  realpathSync,
  rmSync,
  statSync,
} from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { type Static, Type } from 'typebox';
import { Value } from 'typebox/value';
import { type SharedSettings, shareSettings } from '../config/print.ts';
import type { Config } from '../config/settings.ts';
import { isRunlakeError, type RunlakeError, runlakeError } from '../errors/runlake-error.ts';
import { isHeldByAny, listenAsHolder } from './holder-socket.ts';
import { isSystemError, loadOrCreateSecret, readFileIfExists, writePrivateFile } from './private-file.ts';
import { describeProcess, isSameProcess, parseProcess, readProcessIdentity } from './process-identity.ts';

/** Takes the lock. @returns a function that releases the lock, or the process id of the current holder. */
export function lockFolder(folder: string): (() => void) | number {
  const draft = join(folder, `lock-draft.${process.pid}.${randomBytes(6).toString('hex')}`);
  writePrivateFile(draft, describeProcess(process.pid));
  try {
    for (;;) {
      const highestLock = findHighestLock(folder);
      const text = highestLock === 0 ? '' : readFileIfExists(lockPath(folder, highestLock));
      if (text === undefined) continue;
      const pid = findLivingProcess(text);
      if (pid !== undefined) return pid;
      const next = highestLock + 1;
      try {
        linkSync(draft, lockPath(folder, next));
      } catch (error) {
        if (isSystemError(error, 'EEXIST')) continue;
        throw error;
      }
      if (findHighestLock(folder) !== next) {
        rmSync(lockPath(folder, next), { force: true });
        continue;
      }
      removeLowerLocks(folder, next);
      return () => writePrivateFile(lockPath(folder, next), '{}');
    }
  } finally {
    rmSync(draft, { force: true });
  }
}

function findLivingProcess(lock: string): number | undefined {
  const holder = parseProcess(lock);
  return holder && isSameProcess(holder.pid, holder.identity) ? holder.pid : undefined;
}

const lockPath = (folder: string, number: number) => join(folder, `lock.${number}`);

function listLockNumbers(folder: string): number[] {
  return readdirSync(folder).flatMap((name) => {
    const number = /^lock\.(\d{1,15})$/.exec(name)?.[1];
    return number === undefined ? [] : [Number(number)];
  });
}

const findHighestLock = (folder: string) => Math.max(0, ...listLockNumbers(folder));

function removeLowerLocks(folder: string, number: number): void {
  for (const lockNumber of listLockNumbers(folder)) {
    if (lockNumber < number) rmSync(lockPath(folder, lockNumber), { force: true });
  }
}

/** The folder for embedded engines and work files, locked by this process. */
export interface DataFolder {
  /** Absolute path with symbolic links resolved. */
  readonly path: string;
  /** Writes the addresses and settings of this process for other `runlake` commands. `close` removes the file. */
  writeRunFile(addresses: RunAddresses, config: Config): void;
  /** Releases the lock. Idempotent. */
  close(): Promise<void>;
}

/**
 * Locks a folder that processes of other containers may use, too.
 *
 * @returns a function that releases it.
 * @throws DATA_FOLDER_IN_USE, which names the process unless it is of another container; errors of the file system.
 */
export async function lockSharedFolder(folder: string): Promise<() => Promise<void>> {
  const createError = (holder: string) => runlakeError('DATA_FOLDER_IN_USE', { folder, holder });
  const invisible = 'a process that is not visible here, such as one of another container';
  if (findHolder(folder) === undefined && (await isHeldByAny(folder))) throw createError(invisible);
  const unlock = lockFolder(folder);
  if (typeof unlock === 'number') throw createError(`process ${unlock}`);
  try {
    const stopListening = await listenAsHolder(folder);
    if (stopListening === undefined) throw createError(invisible);
    return async () => {
      await stopListening();
      unlock();
    };
  } catch (error) {
    unlock();
    throw error;
  }
}

/**
 * Creates the folder if it is missing (mode 0700), and locks it for this process. The lock of a killed process is
 * ignored.
 *
 * @throws the errors of {@link lockSharedFolder}; DATA_FOLDER_UNUSABLE if the folder cannot be created or written to.
 */
export async function openDataFolder(path: string): Promise<DataFolder> {
  const folder = createFolder(resolve(path));
  const release = await lockSharedFolder(folder).catch((error: unknown) => {
    // Taking the lock is the first write to the folder, so errors such as a full disk are detected here.
    throw isRunlakeError(error) ? error : createUnusableError(folder, error);
  });
  // A killed process leaves its run file behind.
  removeRunFile(folder);
  let isOpen = true;
  return {
    path: folder,
    writeRunFile: (addresses, config) => writeRunFile(folder, addresses, config),
    async close() {
      if (!isOpen) return;
      isOpen = false;
      removeRunFile(folder);
      await release();
    },
  };
}

function createFolder(path: string): string {
  try {
    createMissingFolders(path);
    const folder = realpathSync(path);
    if (!statSync(folder).isDirectory())
      throw runlakeError('DATA_FOLDER_UNUSABLE', { folder: path, reason: 'it is a file' });
    accessSync(folder, constants.R_OK | constants.W_OK | constants.X_OK);
    return folder;
  } catch (error) {
    if (isRunlakeError(error)) throw error;
    throw createUnusableError(path, error);
  }
}

function createUnusableError(folder: string, cause: unknown): RunlakeError {
  return runlakeError('DATA_FOLDER_UNUSABLE', { folder, reason: toReason(cause) }, { cause });
}

/**
 * Creates a folder and its missing parents. Does not use Node's option `recursive`, because it retries forever on file
 * systems without mkdir, such as /proc.
 */
function createMissingFolders(path: string): void {
  if (existsSync(path)) return;
  if (dirname(path) !== path) createMissingFolders(dirname(path));
  try {
    mkdirSync(path, { mode: 0o700 });
  } catch (error) {
    // Another process has created the path in the meantime. If it is a file, the caller reports an error.
    if (!isSystemError(error, 'EEXIST')) throw error;
  }
}

const reasonByErrorCode: Readonly<Record<string, string>> = {
  EACCES: 'this user has no write permission',
  EPERM: 'this user has no write permission',
  EROFS: 'the file system is read-only',
  EEXIST: 'it, or a part of its path, is a file',
  ENOTDIR: 'a part of its path is a file',
  ENOENT: 'the folder cannot be created',
  ENOSPC: 'the disk is full',
  ENAMETOOLONG: 'the path is too long',
  ELOOP: 'the path contains a loop of symbolic links',
};

function toReason(error: unknown): string {
  const known = Object.entries(reasonByErrorCode).find(([code]) => isSystemError(error, code));
  return known?.[1] ?? (error instanceof Error ? error.message : String(error));
}

/**
 * Returns the key that encrypts stored credentials if engines are embedded. The key consists of 32 random bytes in
 * base64url. The first call creates it in `secret.key` (mode 0600). The caller must hold the folder's lock.
 */
export function loadOrCreateSecretKey(folder: string): string {
  return loadOrCreateSecret(secretKeyPath(folder), 32);
}

/** Returns the key of {@link loadOrCreateSecretKey}, or `undefined` if the folder has none. */
export const readSecretKey = (folder: string) => readFileIfExists(secretKeyPath(folder))?.trim();

const secretKeyPath = (folder: string) => join(folder, 'secret.key');

const RunFile = Type.Object({
  pid: Type.Integer({ minimum: 1 }),
  process: Type.String(),
  started_at: Type.String(),
  url: Type.String(),
  clickhouse_url: Type.String(),
  database_url: Type.String(),
  // Absent in the file of an older release.
  uid: Type.Optional(Type.Union([Type.Integer(), Type.Null()])),
  graph_code: Type.Optional(Type.Union([Type.String(), Type.Null()])),
  settings: Type.Optional(Type.Record(Type.String(), Type.Unknown())),
  secret_settings: Type.Optional(Type.Array(Type.String())),
});

/** Addresses of a running instance and its engines. They contain passwords. */
interface RunAddresses {
  /** Address of the main API. */
  readonly url: string;
  readonly clickhouseUrl: string;
  readonly databaseUrl: string;
  /** User id, home and rights of graph code, in words. Undefined if the instance has no agent server. */
  readonly graphCode: string | undefined;
}

/** What other commands must know about a running instance, because they have another environment or another user. */
export interface RunningInstance extends RunAddresses, SharedSettings {
  readonly pid: number;
  /** User id; undefined if the platform has none. */
  readonly uid: number | undefined;
  /** Start time in ISO 8601, UTC. */
  readonly startedAt: string;
}

const runFilePath = (folder: string) => join(folder, 'run.json');

/** Writes `run.json` for other `runlake` commands, atomically and with mode 0600. */
function writeRunFile(folder: string, addresses: RunAddresses, config: Config): void {
  const { settings, secretSettings } = shareSettings(config);
  const run: Static<typeof RunFile> = {
    pid: process.pid,
    process: readProcessIdentity(process.pid) ?? '',
    started_at: new Date(Date.now() - process.uptime() * 1_000).toISOString(),
    url: addresses.url,
    clickhouse_url: addresses.clickhouseUrl,
    database_url: addresses.databaseUrl,
    uid: process.getuid?.() ?? null,
    graph_code: addresses.graphCode ?? null,
    settings,
    secret_settings: [...secretSettings],
  };
  writePrivateFile(runFilePath(folder), `${JSON.stringify(run, null, 2)}\n`);
}

function removeRunFile(folder: string): void {
  rmSync(runFilePath(folder), { force: true });
}

/** Returns the id of the process that holds the lock of a data folder, which may not exist. */
export function findHolder(path: string): number | undefined {
  const folder = resolve(path);
  if (!statSync(folder, { throwIfNoEntry: false })?.isDirectory()) return undefined;
  return findLivingProcess(readFileIfExists(lockPath(folder, findHighestLock(folder))) ?? '');
}

/**
 * Reads the run file of the instance that uses the data folder. Ignores the file of a killed instance.
 *
 * @throws NOT_RUNNING; INSTANCE_NOT_READY if the instance has not written the file yet; DATA_FOLDER_UNUSABLE if this user
 *   is not permitted to read the file.
 */
export async function readRunFile(path: string): Promise<RunningInstance> {
  const folder = resolve(path);
  let run: unknown;
  let pid: number | undefined;
  try {
    pid = findHolder(folder);
    run = JSON.parse(readFileIfExists(runFilePath(folder)) ?? 'null');
  } catch (error) {
    if (isSystemError(error, 'EACCES')) {
      throw runlakeError('DATA_FOLDER_UNUSABLE', { folder, reason: 'it belongs to another user' }, { cause: error });
    }
    if (!(error instanceof SyntaxError)) throw error;
  }
  if (!Value.Check(RunFile, run) || !isSameProcess(run.pid, run.process)) {
    throw pid === undefined
      ? runlakeError('NOT_RUNNING', { folder })
      : runlakeError('INSTANCE_NOT_READY', { folder, pid });
  }
  return {
    pid: run.pid,
    startedAt: run.started_at,
    url: run.url,
    clickhouseUrl: run.clickhouse_url,
    databaseUrl: run.database_url,
    uid: run.uid ?? undefined,
    graphCode: run.graph_code ?? undefined,
    settings: run.settings ?? {},
    secretSettings: run.secret_settings ?? [],
  };
}

/** As {@link readRunFile}, but returns undefined if no instance runs, or if it is starting or stopping. */
export async function findRunningInstance(path: string): Promise<RunningInstance | undefined> {
  try {
    return await readRunFile(path);
  } catch (error) {
    if (isRunlakeError(error) && ['NOT_RUNNING', 'INSTANCE_NOT_READY'].includes(error.code)) return undefined;
    throw error;
  }
}
