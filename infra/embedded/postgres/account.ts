import { lstatSync, statSync } from 'node:fs';
import { dirname } from 'node:path';

/** User and group id that Postgres runs as, if they differ from those of this process. */
export interface Account {
  readonly uid: number;
  readonly gid: number;
}

/** `nobody`. Postgres refuses to run as root. */
export const nobody: Account = { uid: 65_534, gid: 65_534 };

/** Whether the account has search permission on the folder and all its parents, by owner and mode. */
export function canPass(account: Account, folder: string): boolean {
  for (let path = folder; ; path = dirname(path)) {
    const { uid, gid, mode } = statSync(path);
    const bit = uid === account.uid ? 0o100 : gid === account.gid ? 0o010 : 0o001;
    if ((mode & bit) === 0) return false;
    if (path === dirname(path)) return true;
  }
}

/**
 * Whether the path is a real folder of this owner that no other user can write to. Protects against planted paths in a
 * shared folder.
 */
export function isOwnFolder(path: string, uid: number): boolean {
  const stat = lstatSync(path, { throwIfNoEntry: false });
  return stat?.isDirectory() === true && stat.uid === uid && (stat.mode & 0o022) === 0;
}
