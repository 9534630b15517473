import { readdirSync, readFileSync } from 'node:fs';
import { readProcessIdentity } from '../../infra/embedded/process-identity.ts';

const variable = 'RUNLAKE_STACK_CHILD_OF';

/** Returns the environment variable that marks a process as a child of the stack in `folder`. */
export const buildProcessMark = (folder: string): Readonly<Record<string, string>> => ({ [variable]: folder });

/**
 * Finds processes with the marker of `folder`, including those whose process id was not recorded in time. Works on
 * Linux only; elsewhere it finds none.
 */
export function markedProcesses(folder: string): number[] {
  if (process.platform !== 'linux') return [];
  const mark = `${variable}=${folder}`;
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => {
      try {
        const environment = readFileSync(`/proc/${pid}/environ`, 'utf8').split('\0');
        return environment.includes(mark) && readProcessIdentity(pid) !== undefined;
      } catch {
        // The process belongs to another user, or has exited.
        return false;
      }
    });
}
