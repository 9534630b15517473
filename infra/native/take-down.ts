import { existsSync } from 'node:fs';
import { lockFolder } from '../embedded/folder-lock.ts';
import { processIdentity } from '../embedded/process-identity.ts';
import { untilGone } from '../embedded/until-gone.ts';
import { clearStack } from './stack-folder.ts';

const stopWithinMs = 30_000;
const killWithinMs = 5_000;

/**
 * Ends the stack of a folder and removes its data; also one that is just starting, and what a killed supervisor left. Safe to
 * repeat, and where there is none. Only processes that provably belong to it get a signal.
 */
export async function takeDown(folder: string): Promise<void> {
  if (!existsSync(folder)) return;
  for (;;) {
    const lock = lockFolder(folder);
    if (typeof lock !== 'number') {
      await clearStack(folder);
      return lock();
    }
    await endSupervisor(lock);
  }
}

async function endSupervisor(pid: number): Promise<void> {
  // Just now the lock saw that this process is its holder.
  const identity = processIdentity(pid);
  const isGone = () => identity === undefined || processIdentity(pid) !== identity;
  signal(pid, 'SIGTERM');
  if (await untilGone(isGone, stopWithinMs)) return;
  signal(pid, 'SIGKILL');
  await untilGone(isGone, killWithinMs);
}

function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch {
    // It has just gone.
  }
}
