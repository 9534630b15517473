/**
 * An exclusive lock on a folder, made of plain files, that is released when its process dies.
 *
 * Invariant: of the files `lock.<n>`, the one with the highest n names the holder, or is empty after a release. That
 * file is never deleted, and only a process that has verified that the holder is dead creates n + 1.
 *
 * 1. Read the highest file. If its holder is alive, refuse.
 * 2. Write this process to a draft and `link` it as the next number. The link is atomic and succeeds for one process
 *    only; all other processes start again at step 1.
 * 3. List the files again. If there is a higher one, this process was late, and another process has had the lock
 *    meanwhile. Delete the file of this process and restart at step 1.
 * 4. The lock is held. Delete the lower files.
 * 5. To release the lock, replace the content of the file by `{}` with a rename.
 *
 * A process that is killed may leave drafts and lower files. They have no effect, and the next holder deletes them in
 * step 4. It may also leave a file that names the dead process. Step 1 detects this by the start time, because process
 * ids are reused.
 */
import { randomBytes } from 'node:crypto';
import { linkSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { isSystemError, readFileIfThere, writePrivateFile } from './private-file.ts';
import { describeProcess, isSameProcess, parseProcess } from './process-identity.ts';

/** Takes the lock. @returns a function that releases it, or the process id of the current holder. */
export function lockFolder(folder: string): (() => void) | number {
  const draft = join(folder, `lock-draft.${process.pid}.${randomBytes(6).toString('hex')}`);
  writePrivateFile(draft, describeProcess(process.pid));
  try {
    for (;;) {
      const highest = findHighestLock(folder);
      const text = highest === 0 ? '' : readFileIfThere(lockPath(folder, highest));
      if (text === undefined) continue;
      const holder = parseProcess(text);
      if (holder && isSameProcess(holder.pid, holder.identity)) return holder.pid;
      const next = highest + 1;
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
      removeLower(folder, next);
      return () => writePrivateFile(lockPath(folder, next), '{}');
    }
  } finally {
    rmSync(draft, { force: true });
  }
}

const lockPath = (folder: string, number: number) => join(folder, `lock.${number}`);

function listLockNumbers(folder: string): number[] {
  return readdirSync(folder).flatMap((name) => {
    const number = /^lock\.(\d{1,15})$/.exec(name)?.[1];
    return number === undefined ? [] : [Number(number)];
  });
}

const findHighestLock = (folder: string) => Math.max(0, ...listLockNumbers(folder));

function removeLower(folder: string, number: number): void {
  for (const lower of listLockNumbers(folder)) {
    if (lower < number) rmSync(lockPath(folder, lower), { force: true });
  }
}
