import type { Hash } from 'node:crypto';
import { type FileHandle, open } from 'node:fs/promises';
import { fault } from '../errors/runlake-error.ts';

/** The file that an upload reads; it is ours, so that one that is not there is a fault of ours. */
export function openSource(path: string): Promise<FileHandle> {
  return open(path, 'r').catch((cause) => {
    throw fault('INTERNAL', {}, { cause });
  });
}

/** Small enough that hashing one does not hold the event loop up. */
const pieceBytes = 1024 ** 2;

/** Fills `buffer` with what the file holds from `position` on, through all `hashes`. */
export async function fillFrom(
  file: FileHandle,
  buffer: Buffer,
  position: number,
  hashes: readonly Hash[],
): Promise<void> {
  for (let filled = 0; filled < buffer.length; ) {
    const length = Math.min(pieceBytes, buffer.length - filled);
    const { bytesRead } = await file.read(buffer, filled, length, position + filled);
    if (bytesRead === 0) throw fault('INTERNAL', {}, { cause: 'a file became shorter while it was uploaded' });
    const piece = buffer.subarray(filled, filled + bytesRead);
    for (const hash of hashes) hash.update(piece);
    filled += bytesRead;
  }
}
