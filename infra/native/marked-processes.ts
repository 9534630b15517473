import { readdirSync, readFileSync } from 'node:fs';
import { processIdentity } from '../embedded/process-identity.ts';

const variable = 'RUNLAKE_STACK_CHILD_OF';

/** Environment by which a process is known for a child of the stack in `folder`. */
export const markOf = (folder: string): Readonly<Record<string, string>> => ({ [variable]: folder });

/**
 * Processes that carry the mark of `folder` since they were started. It finds those that nobody had time to write down; on
 * Linux only, elsewhere none.
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
        return environment.includes(mark) && processIdentity(pid) !== undefined;
      } catch {
        // Somebody else's, or gone.
        return false;
      }
    });
}
