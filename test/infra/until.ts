import { setTimeout as pause } from 'node:timers/promises';

/** Between two questions it pauses a tenth of what it has waited, and never less or more than this. */
const shortestPauseMs = 10;
const longestPauseMs = 100;

/**
 * Asks again until `holds` says yes: the longer it takes the less often, since most questions go to the servers that
 * are waited for, and many tests wait at a time. @throws after `deadlineMs`, with `what` was waited for.
 */
export async function until(what: string, holds: () => Promise<boolean> | boolean, deadlineMs = 30_000): Promise<void> {
  const start = performance.now();
  while (!(await holds())) {
    const waitedMs = performance.now() - start;
    if (waitedMs > deadlineMs) throw new Error(`waited ${deadlineMs} ms for: ${what}`);
    await pause(Math.min(longestPauseMs, Math.max(shortestPauseMs, waitedMs / 10)));
  }
}
