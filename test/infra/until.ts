import { setTimeout as pause } from 'node:timers/promises';

/** Asks again until `holds` says yes. @throws after `deadlineMs`, with `what` was waited for. */
export async function until(what: string, holds: () => Promise<boolean> | boolean, deadlineMs = 30_000): Promise<void> {
  const end = performance.now() + deadlineMs;
  while (!(await holds())) {
    if (performance.now() > end) throw new Error(`waited ${deadlineMs} ms for: ${what}`);
    await pause(10);
  }
}
