import { randomBytes } from 'node:crypto';
import { lstat, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { isSameProcess, processIdentity } from './process-identity.ts';

/** The name of the file that says whose a folder is. */
const ownerFile = 'owner.json';
/** A folder without it is being made, or was left by a process that died doing so. */
const makingMs = 60_000;

/**
 * Makes a folder below `root` for what this process needs while it runs, and removes those that processes of this user which died have
 * left there. Others may write to `root`: what is in folders of theirs is not opened.
 *
 * @param options `prefix` of the names, to tell them from others in a shared `root`; `mode`, 0700 by default.
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
