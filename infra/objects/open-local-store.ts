import { createHash, randomBytes } from 'node:crypto';
import { constants } from 'node:fs';
import { type FileHandle, lstat, mkdir, open, realpath, rename, rm, stat } from 'node:fs/promises';
import { basename, dirname, join, sep } from 'node:path';
import { isSystemError } from '../embedded/private-file.ts';
import { isRunlakeError, type RunlakeError, runlakeError } from '../errors/runlake-error.ts';
import {
  chunkBytes,
  createDestinationError,
  fillFromFile,
  isMissingObjectError,
  joinKey,
  type ObjectCall,
  type ObjectStep,
  type ObjectStore,
  openSource,
  readAtMost,
} from './object-store.ts';

export interface LocalOptions {
  /** The root folder, which only the operator configures. It must exist. */
  readonly root: string;
  /** Path below the root; its folders are joined by `/`. */
  readonly prefix: string;
}

/**
 * Opens a folder below the root for local exports. Messages contain paths relative to the root, because callers must
 * not see the path of the root.
 */
export function openLocalStore({ root, prefix }: LocalOptions): ObjectStore {
  const resolvePath = (key: string) => joinKey(prefix, key);
  const attempt = async <Result>(
    step: ObjectStep,
    key: string,
    signal: AbortSignal | undefined,
    work: (call: ObjectCall) => Promise<Result>,
  ): Promise<Result> => {
    signal?.throwIfAborted();
    const call = { step, location: resolvePath(key) };
    try {
      return await work(call);
    } catch (error) {
      signal?.throwIfAborted();
      throw toLocalError(error, call);
    }
  };
  const resolveLocation = (key: string, call: ObjectCall, createFolder?: boolean) =>
    resolveInsideRoot(root, resolvePath(key), call, createFolder);

  return {
    resolvePath,
    ping: ({ signal } = {}) =>
      attempt('reach', '', signal, async (call) => {
        const isFolder = (await stat(await realpath(root))).isDirectory();
        if (!isFolder)
          throw createDestinationError('DESTINATION_BUCKET_NOT_VALID', call, 'the root for local exports is a file');
      }),
    put: (key, body, { signal } = {}) =>
      attempt('write', key, signal, async (call) => {
        const path = await resolveLocation(key, call, true);
        await writeAtomically(path, resolveDraftPath(path, createDraftName()) as string, (file) =>
          file.writeFile(body),
        );
      }),
    get: (key, { maxBytes, signal }) =>
      attempt('read', key, signal, async (call) => {
        const file = await open(await resolveLocation(key, call), constants.O_RDONLY | constants.O_NOFOLLOW);
        try {
          return await readAtMost(file.createReadStream({ autoClose: false }), maxBytes);
        } finally {
          await file.close();
        }
      }),
    stat: (key, { signal } = {}) =>
      attempt('read', key, signal, async (call) => {
        const { size } = await lstat(await resolveLocation(key, call));
        return { bytes: size, etag: undefined };
      }).catch((error) => {
        if (isMissingObjectError(error)) return undefined;
        throw error;
      }),
    delete: (key, { signal } = {}) =>
      attempt('delete', key, signal, async (call) => rm(await resolveLocation(key, call), { force: true })),
    upload: (key, from, { signal, recordUpload, confirmReplace, onProgress } = {}) =>
      attempt('upload', key, signal, async (call) => {
        const source = await openSource(from);
        try {
          const { size } = await source.stat();
          const path = await resolveLocation(key, call, true);
          const draftName = createDraftName();
          await recordUpload?.(draftName);
          const hash = createHash('sha256');
          let bytes = 0;
          const write = async (file: FileHandle) => {
            const buffer = Buffer.allocUnsafe(Math.min(chunkBytes, size));
            while (bytes < size) {
              signal?.throwIfAborted();
              const chunk = buffer.subarray(0, size - bytes);
              await fillFromFile(source, chunk, bytes, [hash]);
              await file.appendFile(chunk);
              bytes += chunk.length;
              onProgress?.(bytes);
            }
            await confirmReplace?.();
          };
          await writeAtomically(path, resolveDraftPath(path, draftName) as string, write);
          return { bytes, sha256: hash.digest('hex') };
        } finally {
          await source.close();
        }
      }),
    abortUploads: async (key, uploadIds, { signal } = {}) => {
      for (const id of uploadIds) {
        await attempt('delete', key, signal, async (call) => {
          const draft = resolveDraftPath(await resolveLocation(key, call), id);
          if (draft !== undefined) await rm(draft, { force: true });
        });
      }
    },
    close: async () => undefined,
  };
}

const createOutsideError = (call: ObjectCall) =>
  createDestinationError('DESTINATION_BUCKET_NOT_VALID', call, 'its prefix leads out of the folder for local exports');

/** Matches parts that are not allowed in a path: empty parts, `.`, `..`, and parts with a NUL character. */
const invalidSegmentPattern = /^(?:\.{1,2})?$|\0/;

/**
 * Returns the absolute path of `name` below `root`, and creates its folder if `make` is set. The path cannot leave the
 * root, either through `name` or through a symbolic link.
 *
 * @throws DESTINATION_BUCKET_NOT_VALID, and errors of the file system.
 */
async function resolveInsideRoot(root: string, name: string, call: ObjectCall, make = false): Promise<string> {
  if (name.split('/').some((part) => invalidSegmentPattern.test(part))) throw createOutsideError(call);
  const top = await realpath(root);
  const path = join(top, name);
  const folder = dirname(path);
  // This check runs before folders are created, because a link in the existing part of the path decides where mkdir
  // would create them.
  await requireInsideRoot(top, await resolveExistingPath(folder), call);
  if (make) {
    await mkdir(folder, { recursive: true });
    await requireInsideRoot(top, await realpath(folder), call);
  }
  return path;
}

async function resolveExistingPath(folder: string): Promise<string> {
  for (let path = folder; ; path = dirname(path)) {
    try {
      return await realpath(path);
    } catch (error) {
      if (!isSystemError(error, 'ENOENT') || dirname(path) === path) throw error;
    }
  }
}

async function requireInsideRoot(top: string, resolvedPath: string, call: ObjectCall): Promise<void> {
  const start = top.endsWith(sep) ? top : top + sep;
  if (resolvedPath !== top && !resolvedPath.startsWith(start)) throw createOutsideError(call);
}

const draftPattern = /^\.draft-[0-9a-f]{24}$/;

const createDraftName = (): string => `.draft-${randomBytes(12).toString('hex')}`;

/** Returns the path of the draft of `path` with the given name; undefined if no draft can have this name. */
function resolveDraftPath(path: string, draftName: string): string | undefined {
  return draftPattern.test(draftName) && basename(path) !== draftName ? join(dirname(path), draftName) : undefined;
}

/**
 * Writes a file atomically.
 *
 * Invariant: a reader of `path` sees the previous file or the complete new file, even after a crash of the machine.
 *
 * 1. Write to a draft in the same folder, with a name that cannot be mistaken for an exported file.
 * 2. Sync the draft to disk.
 * 3. Rename it, and sync the folder to disk.
 * A failure before step 3 deletes the draft. The draft of a killed process is later deleted by its recorded name.
 */
async function writeAtomically(path: string, draft: string, write: (file: FileHandle) => Promise<void>): Promise<void> {
  try {
    const file = await open(draft, 'wx', 0o644);
    try {
      await write(file);
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(draft, path);
  } catch (error) {
    await rm(draft, { force: true });
    throw error;
  }
  const folder = await open(dirname(path), 'r');
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}

type KnownError = readonly [code: Parameters<typeof createDestinationError>[0], reason: string];

const accessDenied: KnownError = ['DESTINATION_ACCESS_DENIED', 'the user that runs Runlake has no permission'];
const diskFull: KnownError = ['DESTINATION_UNAVAILABLE', 'the disk is full'];

const errorByCode: Readonly<Record<string, KnownError>> = {
  EACCES: accessDenied,
  EPERM: accessDenied,
  EROFS: ['DESTINATION_ACCESS_DENIED', 'the file system is read-only'],
  ENOENT: ['DESTINATION_BUCKET_NOT_VALID', 'the folder of RUNLAKE_LOCAL_EXPORT_ROOT does not exist'],
  ENOTDIR: ['DESTINATION_BUCKET_NOT_VALID', 'a part of its path is a file'],
  EISDIR: ['DESTINATION_BUCKET_NOT_VALID', 'a folder has the name of the object'],
  EEXIST: ['DESTINATION_BUCKET_NOT_VALID', 'a part of its path is a file'],
  ENAMETOOLONG: ['DESTINATION_BUCKET_NOT_VALID', 'its name is too long'],
  ELOOP: ['DESTINATION_BUCKET_NOT_VALID', 'its path contains a loop of symbolic links'],
  ENOSPC: diskFull,
  EDQUOT: diskFull,
};

/** Converts a file system error to a RunlakeError. */
function toLocalError(raw: unknown, call: ObjectCall): RunlakeError {
  if (isRunlakeError(raw)) return raw;
  const code = String((raw as NodeJS.ErrnoException | undefined)?.code);
  if (code === 'ENOENT' && call.step === 'read')
    return runlakeError('DESTINATION_OBJECT_MISSING', { where: call.location });
  const [name, reason] = errorByCode[code] ?? ['DESTINATION_UNAVAILABLE', `the file system returned ${code}`];
  return createDestinationError(name, call, reason, raw);
}
