import { readdirSync, readFileSync } from 'node:fs';
import { until } from './until.ts';

/** Suspends a process and waits until it is. On a busy machine, its threads stop with a delay. */
export async function suspendProcess(pid: number): Promise<void> {
  process.kill(pid, 'SIGSTOP');
  if (process.platform === 'linux') await until('the process to be suspended', () => isSuspended(pid), 30_000);
}

function isSuspended(pid: number): boolean {
  return readdirSync(`/proc/${pid}/task`).every((thread) => {
    try {
      return /^State:\s+[Tt]/m.test(readFileSync(`/proc/${pid}/task/${thread}/status`, 'latin1'));
    } catch {
      // The thread ended after it was listed.
      return true;
    }
  });
}
