import { existsSync } from 'node:fs';
import { lockFolder } from '../../infra/embedded/data-folder.ts';
import { readProcessIdentity, waitForExit } from '../../infra/embedded/process-identity.ts';
import { clearStack } from './stack-folder.ts';

const stopTimeoutMs = 30_000;
const killTimeoutMs = 5_000;

/**
 * Stops the stack of a folder and deletes its data, even if the stack is still starting or its supervisor was killed.
 * Idempotent; does nothing without a stack. Only processes that are proven to belong to the stack get a signal.
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
  // The lock has just verified that this process is its holder.
  const identity = readProcessIdentity(pid);
  const isGone = () => identity === undefined || readProcessIdentity(pid) !== identity;
  signal(pid, 'SIGTERM');
  if (await waitForExit(isGone, stopTimeoutMs)) return;
  signal(pid, 'SIGKILL');
  await waitForExit(isGone, killTimeoutMs);
}

function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch {
    // The process has just exited.
  }
}
