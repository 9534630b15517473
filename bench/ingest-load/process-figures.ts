import { readFileSync } from 'node:fs';

/** Target: peak resident memory of a process that serves the main API or stores events. */
export const maxPeakMib = 400;

/** CPU seconds, user and system, of a process. Linux only. */
export function cpuSeconds(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? [];
  return (Number(fields[11]) + Number(fields[12])) / 100;
}

/** Resident memory of a process in MiB: maximum or current. Linux only. */
export function memoryMib(pid: number, which: 'VmHWM' | 'VmRSS'): number {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  return Number(new RegExp(`${which}:\\s+(\\d+)`).exec(status)?.[1] ?? 0) / 1_024;
}
