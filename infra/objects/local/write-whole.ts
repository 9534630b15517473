/**
 * Writes a file whole or not at all.
 *
 * Invariant: whoever opens `path` finds what was there before or all of the new file, also after a crash of the machine.
 *
 * 1. Write to a draft in the same folder, whose name no reader takes for a file of the export.
 * 2. Put the draft on the disk.
 * 3. Rename it, and put the folder on the disk.
 * Whatever fails before 3 removes the draft; one that a killed process left behind is removed by its name.
 */
import { randomBytes } from 'node:crypto';
import { type FileHandle, open, rename, rm } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';

const draftForm = /^\.draft-[0-9a-f]{24}$/;

export const newDraftName = (): string => `.draft-${randomBytes(12).toString('hex')}`;

/** Where the draft of that name for `path` lies; undefined where it is no name of a draft. */
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
