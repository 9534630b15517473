import { createHash } from 'node:crypto';
import { constants } from 'node:fs';
import { type FileHandle, lstat, open, realpath, rm, stat } from 'node:fs/promises';
import { isRunlakeError } from '../../errors/runlake-error.ts';
import { destinationError, type ObjectCall, type ObjectStep } from '../destination-error.ts';
import { joinKey } from '../object-key.ts';
import type { ObjectStore } from '../object-store.ts';
import { readAtMost } from '../read-at-most.ts';
import { fillFrom, openSource } from '../source-file.ts';
import { localError } from './local-error.ts';
import { resolveBelow } from './resolve-below.ts';
import { draftPath, newDraftName, writeWhole } from './write-whole.ts';

const chunkBytes = 1024 ** 2;

export interface LocalOptions {
  /** The root folder, which only the operator configures. It must exist. */
  readonly root: string;
  /** Folders below the root, joined by `/`. */
  readonly prefix: string;
}

/**
 * Opens a folder below the root for local exports. Messages contain paths relative to the root, because callers must
 * not see it.
 */
export function openLocalStore({ root, prefix }: LocalOptions): ObjectStore {
  const pathOf = (key: string) => joinKey(prefix, key);
  const attempt = async <Result>(
    step: ObjectStep,
    key: string,
    signal: AbortSignal | undefined,
    work: (call: ObjectCall) => Promise<Result>,
  ): Promise<Result> => {
    signal?.throwIfAborted();
    const call = { step, where: pathOf(key) };
    try {
      return await work(call);
    } catch (error) {
      signal?.throwIfAborted();
      throw localError(error, call);
    }
  };
  const locationOf = (key: string, call: ObjectCall, make = false) => resolveBelow(root, pathOf(key), call, { make });

  return {
    pathOf,
    reach: ({ signal } = {}) =>
      attempt('reach', '', signal, async (call) => {
        const isFolder = (await stat(await realpath(root))).isDirectory();
        if (!isFolder)
          throw destinationError('DESTINATION_BUCKET_NOT_VALID', call, 'the root for local exports is a file');
      }),
    put: (key, body, { signal } = {}) =>
      attempt('write', key, signal, async (call) => {
        const path = await locationOf(key, call, true);
        await writeWhole(path, draftPath(path, newDraftName()) as string, (file) => file.writeFile(body));
      }),
    get: (key, { maxBytes, signal }) =>
      attempt('read', key, signal, async (call) => {
        const file = await open(await locationOf(key, call), constants.O_RDONLY | constants.O_NOFOLLOW);
        try {
          return await readAtMost(file.createReadStream({ autoClose: false }), maxBytes);
        } finally {
          await file.close();
        }
      }),
    stat: (key, { signal } = {}) =>
      attempt('read', key, signal, async (call) => {
        const { size } = await lstat(await locationOf(key, call));
        return { bytes: size, etag: undefined };
      }).catch((error) => {
        if (isRunlakeError(error) && error.code === 'DESTINATION_OBJECT_MISSING') return undefined;
        throw error;
      }),
    delete: (key, { signal } = {}) =>
      attempt('delete', key, signal, async (call) => rm(await locationOf(key, call), { force: true })),
    upload: (key, from, { signal, recordUpload, mayReplace, onProgress } = {}) =>
      attempt('upload', key, signal, async (call) => {
        const source = await openSource(from);
        try {
          const { size } = await source.stat();
          const path = await locationOf(key, call, true);
          const draftName = newDraftName();
          await recordUpload?.(draftName);
          const hash = createHash('sha256');
          let bytes = 0;
          const write = async (file: FileHandle) => {
            const buffer = Buffer.allocUnsafe(Math.min(chunkBytes, size));
            while (bytes < size) {
              signal?.throwIfAborted();
              const chunk = buffer.subarray(0, size - bytes);
              await fillFrom(source, chunk, bytes, [hash]);
              await file.appendFile(chunk);
              bytes += chunk.length;
              onProgress?.(bytes);
            }
            await mayReplace?.();
          };
          await writeWhole(path, draftPath(path, draftName) as string, write);
          return { bytes, sha256: hash.digest('hex') };
        } finally {
          await source.close();
        }
      }),
    abortUploads: async (key, uploadIds, { signal } = {}) => {
      for (const id of uploadIds) {
        await attempt('delete', key, signal, async (call) => {
          const draft = draftPath(await locationOf(key, call), id);
          if (draft !== undefined) await rm(draft, { force: true });
        });
      }
    },
    close: async () => undefined,
  };
}
