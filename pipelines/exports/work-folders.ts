import { randomBytes } from 'node:crypto';
import { mkdir, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { isSameProcess, processIdentity } from '../../infra/embedded/process-identity.ts';
import { workFileFault } from '../../infra/errors/work-file-fault.ts';

/** The name of the file that says whose a folder is. */
const ownerFile = 'owner.json';
/** A folder without it is being made, or was left by a process that died doing so. */
const makingMs = 60_000;

/**
 * Folders for files on their way to a bucket: one below `root` for this process, one in it for each attempt. Nothing in them is
 * needed again after an end or a crash; what processes that died have left is removed when another one starts.
 */
export interface WorkFolders {
  /** Does `work` with a new folder of its own, which is removed afterwards. */
  during<Result>(name: string, work: (folder: string) => Promise<Result>): Promise<Result>;
  close(): Promise<void>;
}

/** @throws WORK_FILE_UNUSABLE where `root` cannot be made, read or written. */
export async function openWorkFolders(root: string): Promise<WorkFolders> {
  return open(root).catch((cause: unknown) => {
    throw workFileFault(root, cause);
  });
}

async function open(root: string): Promise<WorkFolders> {
  await mkdir(root, { recursive: true, mode: 0o700 });
  await removeLeft(root);
  const own = join(root, `${process.pid}-${randomBytes(6).toString('hex')}`);
  await mkdir(own, { mode: 0o700 });
  const owner = { pid: process.pid, identity: processIdentity(process.pid) };
  await writeFile(join(own, ownerFile), JSON.stringify(owner));
  return {
    async during(name, work) {
      const folder = join(own, `${name}-${randomBytes(4).toString('hex')}`);
      await mkdir(folder).catch((cause: unknown) => {
        throw workFileFault(root, cause);
      });
      try {
        return await work(folder);
      } finally {
        await rm(folder, { recursive: true, force: true });
      }
    },
    close: () => rm(own, { recursive: true, force: true }),
  };
}

async function removeLeft(root: string): Promise<void> {
  for (const name of await readdir(root)) {
    const folder = join(root, name);
    if (/^\d+-[\da-f]{12}$/.test(name) && (await isLeft(folder))) await rm(folder, { recursive: true, force: true });
  }
}

async function isLeft(folder: string): Promise<boolean> {
  try {
    const { pid, identity } = JSON.parse(await readFile(join(folder, ownerFile), 'utf8')) as Record<string, unknown>;
    return !isSameProcess(Number(pid), String(identity));
  } catch {
    const made = await stat(folder).catch(() => undefined);
    return made !== undefined && Date.now() - made.mtimeMs > makingMs;
  }
}
