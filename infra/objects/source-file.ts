import type { Hash } from 'node:crypto';
import { type FileHandle, open } from 'node:fs/promises';
import { runlakeError } from '../errors/runlake-error.ts';

/** Opens the file of an upload. Runlake created it, so a missing file is an internal error. */
export function openSource(path: string): Promise<FileHandle> {
  return open(path, 'r').catch((cause) => {
    throw runlakeError('INTERNAL', {}, { cause });
  });
}

/** Small enough that hashing one chunk does not block the event loop. */
const chunkBytes = 1024 ** 2;

/** Fills `buffer` with the contents of the file from `position` on, and updates all `hashes`. */
export async function fillFrom(
  file: FileHandle,
  buffer: Buffer,
  position: number,
  hashes: readonly Hash[],
): Promise<void> {
  for (let filled = 0; filled < buffer.length; ) {
    const length = Math.min(chunkBytes, buffer.length - filled);
    const { bytesRead } = await file.read(buffer, filled, length, position + filled);
    if (bytesRead === 0) throw runlakeError('INTERNAL', {}, { cause: 'a file became shorter while it was uploaded' });
    const chunk = buffer.subarray(filled, filled + bytesRead);
    for (const hash of hashes) hash.update(chunk);
    filled += bytesRead;
  }
}
