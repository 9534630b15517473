import { accessSync, constants, existsSync, mkdirSync, realpathSync, statSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { fault, isRunlakeError, type RunlakeError } from '../errors/runlake-error.ts';
import { lockFolder } from './folder-lock.ts';
import { isSystemError } from './private-file.ts';
import { type RunAddresses, removeRunFile, writeRunFile } from './run-file.ts';

/** The folder where embedded engines and work files live, held by this process alone. */
export interface DataFolder {
  /** Absolute, symbolic links resolved. */
  readonly path: string;
  /** Tells commands beside this process where it answers; removed by `close`. */
  writeRunFile(addresses: RunAddresses): void;
  /** Gives the folder back; safe to call twice. */
  close(): Promise<void>;
}

/**
 * Makes the folder where it is missing (mode 0700) and takes it for this process. A process that was killed does not hold it
 * any more.
 *
 * @throws DATA_FOLDER_IN_USE with the holder's process id; DATA_FOLDER_UNUSABLE where it cannot be made or written.
 */
export async function openDataFolder(path: string): Promise<DataFolder> {
  const folder = makeFolder(resolve(path));
  const lock = takeLock(folder);
  if (typeof lock === 'number') throw fault('DATA_FOLDER_IN_USE', { folder, pid: lock });
  // Left by a process that was killed.
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
    if (!statSync(folder).isDirectory()) throw fault('DATA_FOLDER_UNUSABLE', { folder: path, reason: 'it is a file' });
    accessSync(folder, constants.R_OK | constants.W_OK | constants.X_OK);
    return folder;
  } catch (error) {
    if (isRunlakeError(error)) throw error;
    throw unusable(path, error);
  }
}

/** The first write: here a full disk shows. */
function takeLock(folder: string): ReturnType<typeof lockFolder> {
  try {
    return lockFolder(folder);
  } catch (error) {
    throw unusable(folder, error);
  }
}

function unusable(folder: string, cause: unknown): RunlakeError {
  return fault('DATA_FOLDER_UNUSABLE', { folder, reason: reasonOf(cause) }, { cause });
}

/** Not by `recursive` of Node, which tries for ever where the file system has no folders to make, as in /proc. */
function makeMissing(path: string): void {
  if (existsSync(path)) return;
  if (dirname(path) !== path) makeMissing(dirname(path));
  try {
    mkdirSync(path, { mode: 0o700 });
  } catch (error) {
    // Another process made it meanwhile; a file in its place is named by whoever looks into it.
    if (!isSystemError(error, 'EEXIST')) throw error;
  }
}

const reasons: Readonly<Record<string, string>> = {
  EACCES: 'this user may not write there',
  EPERM: 'this user may not write there',
  EROFS: 'the file system is read-only',
  EEXIST: 'it, or a part of its path, is a file',
  ENOTDIR: 'a part of its path is a file',
  ENOENT: 'no folder can be made there',
  ENOSPC: 'the disk is full',
  ENAMETOOLONG: 'the path is too long',
  ELOOP: 'the path is a loop of symbolic links',
};

function reasonOf(error: unknown): string {
  const known = Object.entries(reasons).find(([code]) => isSystemError(error, code));
  return known?.[1] ?? (error instanceof Error ? error.message : String(error));
}
