import { accessSync, constants, existsSync, mkdirSync, realpathSync, statSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { isRunlakeError, type RunlakeError, runlakeError } from '../errors/runlake-error.ts';
import { lockFolder } from './folder-lock.ts';
import { isSystemError } from './private-file.ts';
import { type RunAddresses, removeRunFile, writeRunFile } from './run-file.ts';

/** The folder of embedded engines and work files, locked by this process. */
export interface DataFolder {
  /** Absolute path with symbolic links resolved. */
  readonly path: string;
  /** Writes the addresses of this process for other `runlake` commands; `close` removes the file. */
  writeRunFile(addresses: RunAddresses): void;
  /** Releases the lock. Idempotent. */
  close(): Promise<void>;
}

/**
 * Creates the folder if it is missing (mode 0700) and locks it for this process. The lock of a killed process is ignored.
 *
 * @throws DATA_FOLDER_IN_USE with the holder's process id; DATA_FOLDER_UNUSABLE if it cannot be created or written.
 */
export async function openDataFolder(path: string): Promise<DataFolder> {
  const folder = makeFolder(resolve(path));
  const lock = takeLock(folder);
  if (typeof lock === 'number') throw runlakeError('DATA_FOLDER_IN_USE', { folder, pid: lock });
  // A killed process leaves its run file.
  removeRunFile(folder);
  let open = true;
  return {
    path: folder,
    writeRunFile: (addresses) => writeRunFile(folder, addresses),
    async close() {
      if (!open) return;
      open = false;
      removeRunFile(folder);
      lock();
    },
  };
}

function makeFolder(path: string): string {
  try {
    makeMissing(path);
    const folder = realpathSync(path);
    if (!statSync(folder).isDirectory())
      throw runlakeError('DATA_FOLDER_UNUSABLE', { folder: path, reason: 'it is a file' });
    accessSync(folder, constants.R_OK | constants.W_OK | constants.X_OK);
    return folder;
  } catch (error) {
    if (isRunlakeError(error)) throw error;
    throw unusable(path, error);
  }
}

/** This is the first write to the folder, so it is the first to fail on a full disk. */
function takeLock(folder: string): ReturnType<typeof lockFolder> {
  try {
    return lockFolder(folder);
  } catch (error) {
    throw unusable(folder, error);
  }
}

function unusable(folder: string, cause: unknown): RunlakeError {
  return runlakeError('DATA_FOLDER_UNUSABLE', { folder, reason: reasonOf(cause) }, { cause });
}

/** Does not use Node's `recursive`, which retries forever on file systems without mkdir, such as /proc. */
function makeMissing(path: string): void {
  if (existsSync(path)) return;
  if (dirname(path) !== path) makeMissing(dirname(path));
  try {
    mkdirSync(path, { mode: 0o700 });
  } catch (error) {
    // Another process has created it meanwhile. If it is a file, the caller reports that.
    if (!isSystemError(error, 'EEXIST')) throw error;
  }
}

const reasons: Readonly<Record<string, string>> = {
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

function reasonOf(error: unknown): string {
  const known = Object.entries(reasons).find(([code]) => isSystemError(error, code));
  return known?.[1] ?? (error instanceof Error ? error.message : String(error));
}
