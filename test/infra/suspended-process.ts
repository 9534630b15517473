import { readdirSync, readFileSync } from 'node:fs';
import { until } from './until.ts';

/** Suspends a process and waits until it is. On a busy machine, its threads stop with a delay. */
export async function suspendProcess(pid: number): Promise<void> {
  process.kill(pid, 'SIGSTOP');
  if (process.platform === 'linux') await until('the process to be suspended', () => isSuspended(pid), 30_000);
}

function isSuspended(pid: number): boolean {
  const threads = readdirSync(`/proc/${pid}/task`);
  return threads.every((thread) =>
    /^State:\s+[Tt]/m.test(readFileSync(`/proc/${pid}/task/${thread}/status`, 'latin1')),
  );
}
