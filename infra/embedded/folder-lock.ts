/**
 * An exclusive lock on a folder, out of plain files, that ends with its process.
 *
 * Invariant: of the files `lock.<n>` the one with the highest n names the holder: a living process, or nobody. It is never
 * removed while it is the highest, and a higher one is made only by a process that saw its holder dead.
 *
 * 1. Read the highest. Its holder lives: refused.
 * 2. Write our own name to a draft and `link` it as the next number: it appears whole, and for one process only. Who comes
 *    second starts again at 1.
 * 3. Look again: where a higher one is there, ours came late, after others had come and gone. Remove it, start again at 1.
 * 4. Hold. Remove the lower ones.
 * 5. To give the lock back, replace the content by "nobody", by a rename.
 *
 * Killed at any point: drafts and lower files are left, which mean nothing and go at the next step 4, and a name whose
 * process is dead, which step 1 sees by its start time (process numbers are used again).
 */
import { randomBytes } from 'node:crypto';
import { linkSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { isSystemError, readFileIfThere, writePrivateFile } from './private-file.ts';
import { isSameProcess, processIdentity } from './process-identity.ts';

interface Holder {
  readonly pid: number;
  readonly identity: string;
}

/** Takes the lock. @returns how to give it back, or the process id of the one that has it. */
export function lockFolder(folder: string): (() => void) | number {
  const draft = join(folder, `lock-draft.${process.pid}.${randomBytes(6).toString('hex')}`);
  const own: Holder = { pid: process.pid, identity: processIdentity(process.pid) ?? '' };
  writePrivateFile(draft, JSON.stringify(own));
  try {
    for (;;) {
      const highest = highestLock(folder);
      const text = highest === 0 ? '' : readFileIfThere(lockPath(folder, highest));
      if (text === undefined) continue;
      const holder = parseHolder(text);
      if (holder && isSameProcess(holder.pid, holder.identity)) return holder.pid;
      const next = highest + 1;
      try {
        linkSync(draft, lockPath(folder, next));
      } catch (error) {
        if (isSystemError(error, 'EEXIST')) continue;
        throw error;
      }
      if (highestLock(folder) !== next) {
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

function lockNumbers(folder: string): number[] {
  return readdirSync(folder).flatMap((name) => {
    const number = /^lock\.(\d{1,15})$/.exec(name)?.[1];
    return number === undefined ? [] : [Number(number)];
  });
}

const highestLock = (folder: string) => Math.max(0, ...lockNumbers(folder));

function removeLower(folder: string, number: number): void {
  for (const lower of lockNumbers(folder)) {
    if (lower < number) rmSync(lockPath(folder, lower), { force: true });
  }
}

function parseHolder(text: string): Holder | undefined {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value !== 'object' || value === null || !('pid' in value) || !('identity' in value)) return undefined;
    return { pid: Number(value.pid), identity: String(value.identity) };
  } catch {
    return undefined;
  }
}
