import { lstatSync, statSync } from 'node:fs';
import { dirname } from 'node:path';

/** User and group id under which Postgres runs, where they are not those of this process. */
export interface Account {
  readonly uid: number;
  readonly gid: number;
}

/** `nobody`. Postgres refuses to run as root. */
export const nobody: Account = { uid: 65_534, gid: 65_534 };

/** Whether the account may pass through the folder and every one above it, by their owners and modes. */
export function canPass(account: Account, folder: string): boolean {
  for (let path = folder; ; path = dirname(path)) {
    const { uid, gid, mode } = statSync(path);
    const bit = uid === account.uid ? 0o100 : gid === account.gid ? 0o010 : 0o001;
    if ((mode & bit) === 0) return false;
    if (path === dirname(path)) return true;
  }
}

/** Whether the folder is a real one of this owner that nobody else can write to: not a trap laid in a shared folder. */
export function isOwnFolder(path: string, uid: number): boolean {
  const stat = lstatSync(path, { throwIfNoEntry: false });
  return stat?.isDirectory() === true && stat.uid === uid && (stat.mode & 0o022) === 0;
}
