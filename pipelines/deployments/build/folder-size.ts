import { lchown, lstat, opendir } from 'node:fs/promises';
import { join } from 'node:path';

/** Calls `visit` for a folder and everything in it. Does not follow links. Files that disappear meanwhile are skipped. */
async function walk(path: string, visit: (path: string) => Promise<boolean>): Promise<void> {
  const pending = [path];
  for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
    const current = next;
    const isFolder = await visit(current).catch(() => false);
    if (!isFolder) continue;
    try {
      for await (const entry of await opendir(current)) pending.push(join(current, entry.name));
    } catch {
      // The folder was deleted meanwhile.
    }
  }
}

/** Disk space of a folder in bytes. Stops when it is larger than `maxBytes`. */
export async function measureFolder(path: string, maxBytes = Number.POSITIVE_INFINITY): Promise<number> {
  let bytes = 0;
  await walk(path, async (entry) => {
    if (bytes > maxBytes) return false;
    const { blocks, size } = await lstat(entry);
    bytes += blocks === undefined ? size : blocks * 512;
    return (await lstat(entry)).isDirectory();
  });
  return bytes;
}

/** Gives a folder and everything in it to a user. */
export function giveFolder(path: string, { uid, gid }: { readonly uid: number; readonly gid: number }): Promise<void> {
  return walk(path, async (entry) => {
    await lchown(entry, uid, gid);
    return (await lstat(entry)).isDirectory();
  });
}
