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
 *      may be refused. The socket gets its name when it accepts connections.
 * Each look deletes the sockets of dead processes.
 *
 * This works for containers on one machine. On a file system without sockets only the lock protects the folder.
 */
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { closeSync, openSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { join } from 'node:path';
import { isSystemError } from './private-file.ts';

const prefix = 'holder.';

/** Whether a process of any container listens in the folder. */
export function isHeldByAny(folder: string): Promise<boolean> {
  return inFolder(folder, async (short) => (await findLivingSockets(short)).length > 0);
}

/**
 * Listens in the folder.
 *
 * @returns a function that ends this; undefined if another process listens, too.
 */
export async function listenAsHolder(folder: string): Promise<(() => Promise<void>) | undefined> {
  const id = randomBytes(6).toString('hex');
  const own = `${prefix}${id}`;
  const server = createServer((socket) => socket.destroy()).unref();
  const close = async () => {
    await new Promise((resolve) => server.close(resolve));
    rmSync(join(folder, own), { force: true });
  };
  return inFolder(folder, async (short) => {
    try {
      const unnamed = join(short, `starting.${id}`);
      await once(server.listen(unnamed), 'listening');
      renameSync(unnamed, join(short, own));
    } catch {
      // The file system has no sockets.
      return async () => undefined;
    }
    const others = (await findLivingSockets(short)).filter((name) => name !== own);
    if (others.length === 0) return close;
    await close();
    return undefined;
  });
}

/** Returns the names of the sockets that accept connections. Deletes those of dead processes. */
async function findLivingSockets(folder: string): Promise<string[]> {
  const living: string[] = [];
  for (const name of readdirSync(folder).filter((each) => each.startsWith(prefix))) {
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
