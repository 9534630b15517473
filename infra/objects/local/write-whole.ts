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
import { randomBytes } from 'node:crypto';
import { type FileHandle, open, rename, rm } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';

const draftForm = /^\.draft-[0-9a-f]{24}$/;

export const newDraftName = (): string => `.draft-${randomBytes(12).toString('hex')}`;

/** Returns the path of the draft of `path` with that name, or undefined if it is not a draft name. */
export function draftPath(path: string, draftName: string): string | undefined {
  return draftForm.test(draftName) && basename(path) !== draftName ? join(dirname(path), draftName) : undefined;
}

export async function writeWhole(
  path: string,
  draft: string,
  write: (file: FileHandle) => Promise<void>,
): Promise<void> {
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
  await syncFolder(dirname(path));
}

async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, 'r');
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}
