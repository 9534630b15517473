import { randomBytes } from 'node:crypto';
import { lstat, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { isSameProcess, processIdentity } from './process-identity.ts';

/** Name of the file that records the owner process of a folder. */
const ownerFile = 'owner.json';
/**
 * A younger folder without that file is still being created; an older one was left by a process that died while creating it.
 */
const makingMs = 60_000;

/**
 * Creates a folder below `root` for files that this process needs while it runs, and deletes the folders of dead
 * processes of the same user. Other users may be able to write to `root`; their folders are not opened.
 *
 * @param options `prefix` of the folder names, to distinguish them in a shared `root`; `mode`, 0700 by default.
 */
export async function makeProcessFolder(
  root: string,
  { prefix = '', mode = 0o700 }: { readonly prefix?: string; readonly mode?: number } = {},
): Promise<string> {
  await mkdir(root, { recursive: true, mode: 0o700 });
  for (const name of await readdir(root)) {
    const isOurs = name.startsWith(prefix) && /^\d+-[\da-f]{12}$/.test(name.slice(prefix.length));
    const folder = join(root, name);
    if (isOurs && (await isLeft(folder))) await rm(folder, { recursive: true, force: true });
  }
  const own = join(root, `${prefix}${process.pid}-${randomBytes(6).toString('hex')}`);
  await mkdir(own, { mode });
  const owner = { pid: process.pid, identity: processIdentity(process.pid) };
  await writeFile(join(own, ownerFile), JSON.stringify(owner));
  return own;
}

async function isLeft(folder: string): Promise<boolean> {
  const made = await lstat(folder).catch(() => undefined);
  if (!made?.isDirectory() || made.uid !== process.getuid?.()) return false;
  try {
    const { pid, identity } = JSON.parse(await readFile(join(folder, ownerFile), 'utf8')) as Record<string, unknown>;
    return !isSameProcess(Number(pid), String(identity));
  } catch {
    return Date.now() - made.mtimeMs > makingMs;
  }
}
