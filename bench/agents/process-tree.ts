import { readdirSync, readFileSync } from 'node:fs';
import { memoryMib } from '../ingest-load/process-figures.ts';

/** Current resident memory of a Runlake and its graph processes, without engines, in MiB. Linux only. */
export function runlakeMemoryMib(pid: number): number {
  const workers = childrenOf(pid).filter((child) => commandOf(child).includes('worker-process'));
  return [pid, ...workers].reduce((sum, each) => sum + memoryMib(each, 'VmRSS'), 0);
}

function childrenOf(pid: number): number[] {
  const pids = readdirSync('/proc').filter((name) => /^\d+$/.test(name));
  return pids.filter((each) => parentOf(each) === pid).map(Number);
}

function parentOf(pid: string): number | undefined {
  const [, fields = ''] = readNow(`/proc/${pid}/stat`).split(') ');
  return Number(fields.split(' ')[1]);
}

function commandOf(pid: number): string {
  return readNow(`/proc/${pid}/cmdline`);
}

/** Empty if the process has exited. */
function readNow(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}
