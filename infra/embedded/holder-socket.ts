/**
 * Detects that a process of another container uses a folder. The lock of the folder cannot: it would take the holder for
 * dead, because the process ids of containers differ, and two servers would write to the same data.
 *
 * Invariant: a process uses the folder only while it listens on a socket `holder.<random>` in it, which the kernel closes
 * when the process ends, and only if no other of these sockets accepted a connection afterwards.
 *
 *   1. Before the lock is taken, look for a socket that accepts connections (`isHeldByAny`). If there is one, refuse the
 *      folder and leave the lock to its holder.
 *   2. Listen, then look again (`listenAsHolder`): of two processes that start at once, the later sees the earlier. Both
 *      may be refused, and the lock file may then be empty although one of them holds the folder.
 *
 * Each look deletes the sockets of dead processes. A socket is called `starting.<random>` until it accepts connections, so
 * that no look deletes it. A process that is killed in between leaves it; it has no effect.
 *
 * This works for containers on one machine. On a file system without sockets only the lock protects the folder.
 */
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { closeSync, openSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { join } from 'node:path';
import { isSystemError } from './private-file.ts';

/** Error codes of `bind` on file systems without sockets. */
const noSocketCodes = ['EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'EINVAL', 'ENOSYS'];

/** Whether a process of any container listens in the folder. */
export function isHeldByAny(folder: string): Promise<boolean> {
  return inFolder(folder, async (short) => (await findLivingSockets(short)).length > 0);
}

/**
 * Listens in the folder.
 *
 * @returns a function that ends this; undefined if another process listens, too.
 * @throws errors of the file system.
 */
export async function listenAsHolder(folder: string): Promise<(() => Promise<void>) | undefined> {
  const id = randomBytes(6).toString('hex');
  const [starting, own] = [`starting.${id}`, `holder.${id}`];
  const server = createServer((socket) => socket.destroy()).unref();
  const close = async () => {
    if (server.listening) await new Promise((resolve) => server.close(resolve));
    for (const name of [starting, own]) rmSync(join(folder, name), { force: true });
  };
  return inFolder(folder, async (short) => {
    try {
      await once(server.listen(join(short, starting)), 'listening');
      renameSync(join(short, starting), join(short, own));
      const others = (await findLivingSockets(short)).filter((name) => name !== own);
      if (others.length === 0) return close;
      await close();
      return undefined;
    } catch (error) {
      await close();
      // The file system has no sockets.
      if (noSocketCodes.some((code) => isSystemError(error, code))) return close;
      throw error;
    }
  });
}

/** Returns the names of the sockets that accept connections. Deletes those of dead processes. */
async function findLivingSockets(folder: string): Promise<string[]> {
  const living: string[] = [];
  for (const name of readdirSync(folder).filter((each) => each.startsWith('holder.'))) {
    const path = join(folder, name);
    const socket = connect(path);
    try {
      await once(socket, 'connect');
      living.push(name);
    } catch (error) {
      // Other errors, such as EAGAIN of a process that accepts nothing, do not prove that the process is dead.
      if (isSystemError(error, 'ECONNREFUSED')) rmSync(path, { force: true });
      else if (!isSystemError(error, 'ENOENT')) living.push(name);
    } finally {
      socket.destroy();
    }
  }
  return living;
}

/** Calls `work` with a short path of the folder, because the path of a socket has at most 107 bytes. */
async function inFolder<Result>(folder: string, work: (short: string) => Promise<Result>): Promise<Result> {
  if (process.platform !== 'linux') return work(folder);
  const fd = openSync(folder, 'r');
  try {
    return await work(`/proc/self/fd/${fd}`);
  } finally {
    closeSync(fd);
  }
}
